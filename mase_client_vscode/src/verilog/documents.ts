/** The hardware documents in the window: opened beside the source once, found again, closed. */
import { Range, TabInputText, TextEditor, TextEditorRevealType, Uri, ViewColumn, window } from 'vscode';
import { HARDWARE, PassTarget } from '../protocol';

/** Show a document beside the active editor, or where it is open already; the cursor stays where it is. */
export async function showBeside(uri: Uri): Promise<TextEditor> {
  const open = columnOf(uri);
  return window.showTextDocument(uri, { viewColumn: open ?? ViewColumn.Beside, preserveFocus: true, preview: false });
}

/** Scroll to a line, from 0, unless it is there already. */
export function reveal(editor: TextEditor, line: number): void {
  editor.revealRange(new Range(line, 0, line, 0), TextEditorRevealType.InCenterIfOutsideViewport);
}

/** Close the tabs of a model's hardware, and of the components that were opened from it. */
export async function close({ path, model }: PassTarget): Promise<void> {
  const stem = `${Uri.file(path).path}/${model}`;
  const tabs = window.tabGroups.all.flatMap(({ tabs }) => tabs);
  const own = tabs.filter(({ input }) => {
    if (!(input instanceof TabInputText) || input.uri.scheme !== HARDWARE) return false;
    return input.uri.path === `${stem}.sv` || input.uri.path.startsWith(`${stem}/rtl/`);
  });
  await window.tabGroups.close(own);
}

function columnOf(uri: Uri): ViewColumn | undefined {
  const holds = (input: unknown) => input instanceof TabInputText && input.uri.toString() === uri.toString();
  return window.tabGroups.all.find(({ tabs }) => tabs.some(({ input }) => holds(input)))?.viewColumn;
}
