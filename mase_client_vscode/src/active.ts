/** Which Python file a person means. */
import { TextEditor, window } from 'vscode';
import { fileOf } from './notebooks';

/** The active editor; where that is no file but an output, hardware, a page, ..., the Python that shows beside it. */
export function pythonEditor(): TextEditor | undefined {
  const active = window.activeTextEditor;
  if (active !== undefined && fileOf(active.document) !== undefined) return isPython(active) ? active : undefined;
  return window.visibleTextEditors.find(isPython);
}

function isPython({ document }: TextEditor): boolean {
  return document.languageId === 'python' && fileOf(document) !== undefined;
}
