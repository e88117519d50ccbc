/** Finds the Python file that a command refers to. */
import { TextEditor, window } from 'vscode';
import { fileOf } from './notebooks';

/**
 * The active editor; if it shows no file but an output, hardware, a page, ..., the Python visible beside it.
 * If a text cell of a notebook has the focus, one of its code cells: VS Code lists cells of hidden notebooks, too.
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
