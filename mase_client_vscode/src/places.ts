/** Places of the text that was traced, and where they stand in an editor now. */
import { Location, Position, Range, Selection, TextEditorRevealType, Uri, ViewColumn, window } from 'vscode';
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

/** Put the cursor there, in the editor that shows the file already, if one does; with `focus` the person goes there too. */
export async function goTo({ uri, range }: Location, focus: boolean): Promise<void> {
  const open = window.visibleTextEditors.find(({ document }) => document.uri.toString() === uri.toString());
  const viewColumn = open?.viewColumn ?? ViewColumn.One;
  const editor = await window.showTextDocument(uri, { viewColumn, preserveFocus: !focus, preview: open === undefined });
  editor.selection = new Selection(range.start, range.start);
  // Not its end, to which a narrow editor would scroll sideways.
  editor.revealRange(new Range(range.start, range.start), TextEditorRevealType.InCenterIfOutsideViewport);
}
