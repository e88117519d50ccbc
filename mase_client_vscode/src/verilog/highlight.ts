/** Highlights corresponding lines on both sides: the Python at the cursor, and its hardware or compiled graphs. */
import { Disposable, OverviewRulerLane, Range, TextEditor, TextEditorRevealType, ThemeColor, Uri, window, workspace } from 'vscode';
import { COMPILED, HARDWARE } from '../protocol';
import { Counterpart } from 'mase-client/records';
import { Server } from '../server';
import { VerilogApi } from './api';

/** How long the cursor must rest. */
const REST_MS = 60;

export class Highlight implements Disposable {
  private readonly api: VerilogApi;
  private readonly lit = window.createTextEditorDecorationType({
    isWholeLine: true,
    backgroundColor: new ThemeColor('editor.wordHighlightStrongBackground'),
    overviewRulerColor: new ThemeColor('editorOverviewRuler.wordHighlightStrongForeground'),
    overviewRulerLane: OverviewRulerLane.Full,
  });
  private readonly listeners: Disposable[];
  private timer: NodeJS.Timeout | undefined;
  private asked = 0;
  /** The last place of the cursor, on either side. */
  private last: TextEditor | undefined;

  constructor(server: Server) {
    this.api = new VerilogApi(server);
    this.listeners = [
      window.onDidChangeTextEditorSelection(({ textEditor }) => this.moved(textEditor)),
      window.onDidChangeActiveTextEditor((editor) => editor && this.moved(editor)),
      window.onDidChangeVisibleTextEditors(() => this.again()),
      workspace.onDidChangeTextDocument(({ document }) => isMade(document.uri) && this.again()),
    ];
  }

  dispose(): void {
    clearTimeout(this.timer);
    Disposable.from(...this.listeners, this.lit).dispose();
  }

  private moved(editor: TextEditor): void {
    if (!isSide(editor)) return;
    this.last = editor;
    this.soon(true);
  }

  /** Update the same place after another change, without scrolling. */
  private again(): void {
    this.soon(false);
  }

  private soon(reveal: boolean): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.show(reveal), REST_MS);
  }

  private async show(reveal: boolean): Promise<void> {
    const editors = window.visibleTextEditors.filter(isSide);
    const from = editors.find(({ document }) => document === this.last?.document);
    if (from === undefined || !editors.some(isSideDocument)) return this.clear(editors);
    const asked = ++this.asked;
    const found = await this.api.counterparts(from.document.uri.toString(), from.selection.active).catch(() => []);
    if (asked !== this.asked) return;
    for (const editor of editors) {
      const ranges = rangesIn(editor, found);
      editor.setDecorations(this.lit, ranges);
      const [first] = ranges;
      if (reveal && editor !== from && first !== undefined && !ranges.some((range) => isVisible(editor, range))) {
        editor.revealRange(first, TextEditorRevealType.InCenter);
      }
    }
  }

  private clear(editors: TextEditor[]): void {
    this.asked++;
    editors.forEach((editor) => editor.setDecorations(this.lit, []));
  }
}

function isSide(editor: TextEditor): boolean {
  return isSideDocument(editor) || editor.document.languageId === 'python';
}

function isSideDocument({ document }: TextEditor): boolean {
  return isMade(document.uri);
}

function isMade({ scheme }: Uri): boolean {
  return scheme === HARDWARE || scheme === COMPILED;
}

function rangesIn({ document }: TextEditor, found: Counterpart[]): Range[] {
  const own = found.filter(({ uri }) => Uri.parse(uri).toString() === document.uri.toString());
  return own.flatMap(({ ranges }) => ranges).map(({ start, end }) => new Range(start.line, start.character, end.line, end.character));
}

function isVisible({ visibleRanges }: TextEditor, range: Range): boolean {
  return visibleRanges.some((visible) => visible.contains(range.start));
}
