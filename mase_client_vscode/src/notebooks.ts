/** Notebooks: the server speaks of a notebook as one file, whose lines are those of its cells. */
import { NotebookDocument, TextDocument, Uri, workspace } from 'vscode';

/** The type of Jupyter's notebooks, in VS Code and in the protocol. */
export const NOTEBOOK = 'jupyter-notebook';
/** The scheme of their cells. */
export const CELL = 'vscode-notebook-cell';
const ENDING = '.ipynb';

/** The file that a document is, or is a cell of; undefined for what is no file. */
export function fileOf(document: TextDocument): Uri | undefined {
  if (document.uri.scheme === 'file') return document.uri;
  if (document.uri.scheme !== CELL) return undefined;
  const cells = (uri: Uri): boolean => uri.scheme === 'file' && uri.path === document.uri.path;
  return workspace.notebookDocuments.find(({ notebookType, uri }) => notebookType === NOTEBOOK && cells(uri))?.uri;
}

export function isNotebook(path: string): boolean {
  return path.endsWith(ENDING);
}

/** The file's document; of a notebook the one that its cells are in, which alone knows whether they were edited. */
export function documentOf(file: Uri): Thenable<NotebookDocument | TextDocument> {
  return isNotebook(file.path) ? workspace.openNotebookDocument(file) : workspace.openTextDocument(file);
}
