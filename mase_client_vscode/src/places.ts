/** Places of the text that was traced, and where they stand in an editor now. */
import { Location, NotebookRange, Position, Range, Selection, TextEditor, TextEditorRevealType, Uri, ViewColumn, commands, window, workspace } from 'vscode';
import { CELL } from './notebooks';
import { PassApi } from './passes/api';

/** Lines from 1, columns from 0. */
export interface TracedPlace {
  path: string;
  line: number;
  column: number;
  end_line: number;
  end_column: number;
}

/** Where a place stands now; undefined where it was edited since. */
export async function presentPlace(api: PassApi, place: TracedPlace): Promise<Location | undefined> {
  const told = await api.request<{ uri: string; range: { start: Position; end: Position } } | null>('mase/presentPlace', place);
  if (told === null) return undefined;
  const { start, end } = told.range;
  return new Location(Uri.parse(told.uri), new Range(start.line, start.character, end.line, end.character));
}

/** A double click asks two or three times: one after the other, so that the last one decides where the person is. */
let going: Promise<void> = Promise.resolve();

/** Put the cursor there, in the editor that shows the file already, if one does; with `focus` the person goes there too. */
export function goTo(location: Location, focus: boolean): Promise<void> {
  const gone = going.then(() => put(location, focus));
  going = gone.catch(() => undefined);
  return gone;
}

async function put({ uri, range }: Location, focus: boolean): Promise<void> {
  const editor = uri.scheme === CELL ? await cellEditor(uri, focus) : await textEditor(uri, focus);
  if (editor === undefined) return;
  editor.selection = new Selection(range.start, range.start);
  // Not its end, to which a narrow editor would scroll sideways.
  editor.revealRange(new Range(range.start, range.start), TextEditorRevealType.InCenterIfOutsideViewport);
}

function textEditor(uri: Uri, focus: boolean): Thenable<TextEditor> {
  const open = visible(uri);
  return window.showTextDocument(uri, { viewColumn: open?.viewColumn ?? ViewColumn.One, preserveFocus: !focus, preview: open === undefined });
}

/** A cell is shown by its notebook, which then has an editor for it; undefined where nobody has the notebook open. */
async function cellEditor(uri: Uri, focus: boolean): Promise<TextEditor | undefined> {
  const cells = workspace.notebookDocuments.flatMap((notebook) => notebook.getCells());
  const cell = cells.find(({ document }) => document.uri.toString() === uri.toString());
  if (cell === undefined) return undefined;
  const open = window.visibleNotebookEditors.find(({ notebook }) => notebook === cell.notebook);
  const selections = [new NotebookRange(cell.index, cell.index + 1)];
  await window.showNotebookDocument(cell.notebook, { viewColumn: open?.viewColumn ?? ViewColumn.One, preserveFocus: !focus, selections });
  if (focus) await commands.executeCommand('notebook.cell.edit');
  return visible(uri);
}

function visible(uri: Uri): TextEditor | undefined {
  return window.visibleTextEditors.find(({ document }) => document.uri.toString() === uri.toString());
}
