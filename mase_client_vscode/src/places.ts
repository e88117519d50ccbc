/** Places of the traced text, and where they are in an editor now. */
import { Location, NotebookRange, Position, Range, Selection, TextEditor, TextEditorRevealType, Uri, ViewColumn, commands, window, workspace } from 'vscode';
import { CELL } from './notebooks';
import { PassApi } from './passes/api';
import { PresentPlace } from 'mase-client/records';

/** Lines from 1, columns from 0. */
export interface TracedPlace {
  path: string;
  line: number;
  column: number;
  end_line: number;
  end_column: number;
}

/** The present range of a place; undefined if it was edited since. */
export async function presentPlace(api: PassApi, place: TracedPlace): Promise<Location | undefined> {
  const told = await api.request<PresentPlace | null>('mase/presentPlace', place);
  if (told === null) return undefined;
  const { start, end } = told.range;
  return new Location(Uri.parse(told.uri), new Range(start.line, start.character, end.line, end.character));
}

/** A double click sends two or three requests: they run one after the other, so that the last one decides. */
let going: Promise<void> = Promise.resolve();

/** Put the cursor there, in an editor that shows the file already, if any; with `focus` the focus goes there, too. */
export function goTo(location: Location, focus: boolean): Promise<void> {
  const gone = going.then(() => put(location, focus));
  going = gone.catch(() => undefined);
  return gone;
}

/** The last jump: where the cursor went, and the place in that line that was meant. */
let last: { uri: string; cursor: Position; meant: Position } | undefined;

/** The cursor goes to the first letter of the line, because a narrow editor would scroll sideways to a later column. */
async function put({ uri, range: { start } }: Location, focus: boolean): Promise<void> {
  const editor = uri.scheme === CELL ? await cellEditor(uri, focus) : await textEditor(uri, focus);
  if (editor === undefined) return;
  const indent = editor.document.lineAt(start.line).firstNonWhitespaceCharacterIndex;
  const cursor = start.with({ character: Math.min(indent, start.character) });
  last = { uri: uri.toString(), cursor, meant: start };
  editor.selection = new Selection(cursor, cursor);
  const line = start.with({ character: 0 });
  editor.revealRange(new Range(line, line), TextEditorRevealType.InCenterIfOutsideViewport);
}

/** The place that an editor's cursor stands for: the one that a jump meant, as long as the cursor stays. */
export function meantBy({ document, selection }: TextEditor): Position {
  if (last === undefined || last.uri !== document.uri.toString()) return selection.active;
  if (last.cursor.isEqual(selection.active)) return last.meant;
  last = undefined;
  return selection.active;
}

function textEditor(uri: Uri, focus: boolean): Thenable<TextEditor> {
  const open = visible(uri);
  return window.showTextDocument(uri, { viewColumn: open?.viewColumn ?? ViewColumn.One, preserveFocus: !focus, preview: open === undefined });
}

/** A cell is shown by its notebook, which then has an editor for it; undefined if the notebook is not open. */
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
