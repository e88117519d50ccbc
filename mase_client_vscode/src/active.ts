/** Which Python file a person means. */
import { TextEditor, window } from 'vscode';
import { fileOf } from './notebooks';

/**
 * The active editor; where that is no file but an output, hardware, a page, ..., the Python that shows beside it.
 * Of a notebook whose cell of text has the focus it is a cell of code: VS Code lists cells of hidden notebooks, too.
 */
export function pythonEditor(): TextEditor | undefined {
  const active = window.activeTextEditor;
  if (active !== undefined && fileOf(active.document) !== undefined) return isPython(active) ? active : undefined;
  const notebook = window.activeNotebookEditor?.notebook.uri.path;
  return window.visibleTextEditors.find((each) => isPython(each) && (notebook === undefined || each.document.uri.path === notebook));
}

function isPython({ document }: TextEditor): boolean {
  return document.languageId === 'python' && fileOf(document) !== undefined;
}
