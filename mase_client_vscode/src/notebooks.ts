/** Notebooks: for the server, a notebook is one file, whose lines are those of its cells. */
import { NotebookDocument, TextDocument, Uri, workspace } from 'vscode';

/** The type of Jupyter's notebooks, in VS Code and in the protocol. */
export const NOTEBOOK = 'jupyter-notebook';
/** The scheme of their cells. */
export const CELL = 'vscode-notebook-cell';
const ENDING = '.ipynb';

/** The file of a document or cell; undefined if there is no file. */
export function fileOf(document: TextDocument): Uri | undefined {
  if (document.uri.scheme === 'file') return document.uri;
  if (document.uri.scheme !== CELL) return undefined;
  const cells = (uri: Uri): boolean => uri.scheme === 'file' && uri.path === document.uri.path;
  return workspace.notebookDocuments.find(({ notebookType, uri }) => notebookType === NOTEBOOK && cells(uri))?.uri;
}

export function isNotebook(path: string): boolean {
  return path.endsWith(ENDING);
}

/** The file's document; for a notebook the one with its cells, because only that one knows whether they were edited. */
export function documentOf(file: Uri): Thenable<NotebookDocument | TextDocument> {
  return isNotebook(file.path) ? workspace.openNotebookDocument(file) : workspace.openTextDocument(file);
}
