/** One panel with the cost table of a model: it follows what is known, and the cursor. */
import { Disposable, Range, Selection, TextEditor, TextEditorRevealType, Uri, ViewColumn, commands, env, window, workspace } from 'vscode';
import { PassApi } from '../passes/api';
import { PassTarget } from '../protocol';
import { Server } from '../server';
import { Panel } from '../webview/panel';
import { FromPage, ToPage } from './messages';
import { CostTable, Place } from './rows';

const KIND = { type: 'mase.costs', page: 'costs' };
/** How long the cursor has to rest. */
const REST_MS = 60;
const SHOWN_MS = 4000;

interface PresentPlace {
  uri: string;
  range: { start: { line: number; character: number }; end: { line: number; character: number } };
}

export class CostPanel implements Disposable {
  private readonly api: PassApi;
  private readonly panel: Panel<ToPage, FromPage>;
  private readonly listeners: Disposable[];
  readonly onClose;
  private table: CostTable | undefined;
  /** The row that a link asked for, until it is shown. */
  private wanted: string | undefined;
  private timer: NodeJS.Timeout | undefined;
  /** The newest question; answers to older ones are left. */
  private asked = 0;
  private pointed = 0;

  constructor(
    server: Server,
    extension: Uri,
    private readonly target: PassTarget,
  ) {
    this.api = new PassApi(server);
    this.panel = Panel.open(KIND, `Costs: ${target.model}`, extension);
    this.onClose = this.panel.onClose;
    this.listeners = [
      this.panel.onReady(() => void this.refresh()),
      this.panel.onMessage((message) => void this.received(message)),
      this.panel.onClose(() => this.dispose()),
      server.onViews(() => void this.refresh()),
      server.onStatus((status) => status.uri === Uri.file(target.path).toString() && void this.refresh()),
      window.onDidChangeTextEditorSelection(({ textEditor }) => this.moved(textEditor)),
      window.onDidChangeActiveTextEditor((editor) => editor && this.moved(editor)),
    ];
  }

  /** Bring it to the front, with one row in sight if that is asked for; the focus stays where it is. */
  reveal(row: string | undefined): void {
    this.panel.panel.reveal(undefined, true);
    this.wanted = row;
    this.select();
  }

  dispose(): void {
    clearTimeout(this.timer);
    Disposable.from(...this.listeners).dispose();
  }

  private async refresh(): Promise<void> {
    const { path, model } = this.target;
    const asked = ++this.asked;
    try {
      const table = await this.api.request<CostTable>('mase/costTable', { path, model });
      if (asked !== this.asked) return;
      this.table = table;
      const problem = problemOf(table);
      this.panel.post({ type: 'table', table, ...(problem === undefined ? {} : { problem }) });
      this.select();
    } catch (error) {
      if (asked !== this.asked) return;
      this.panel.post({ type: 'nothing', problem: error instanceof Error ? error.message : `${error}` });
    }
    const editor = window.visibleTextEditors.find(({ document }) => document.uri.fsPath === path);
    if (editor !== undefined) this.moved(editor);
  }

  /** Once the page has a table, it is told which row a link asked for. */
  private select(): void {
    if (this.wanted === undefined || this.table === undefined) return;
    if (this.panel.post({ type: 'select', id: this.wanted })) this.wanted = undefined;
  }

  private moved(editor: TextEditor): void {
    if (editor.document.languageId !== 'python') return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.point(editor), REST_MS);
  }

  private async point({ document, selection }: TextEditor): Promise<void> {
    const pointed = ++this.pointed;
    const params = { uri: document.uri.toString(), position: selection.active, path: this.target.path, model: this.target.model };
    const { ids } = await this.api.request<{ ids: string[] }>('mase/costRowsAt', params).catch(() => ({ ids: [] }));
    if (pointed === this.pointed) this.panel.post({ type: 'cursor', ids });
  }

  private async received(message: FromPage): Promise<void> {
    try {
      switch (message.type) {
        case 'goto':
          return await this.goTo(message.id, message.focus);
        case 'copy':
          await env.clipboard.writeText(message.text);
          return void window.setStatusBarMessage(`MASE: ${message.rows} rows are in the clipboard`, SHOWN_MS);
        case 'save':
          return await this.save(message.text);
        case 'graph':
          return void (await commands.executeCommand('mase.showGraph', { path: this.target.path, model: this.target.model }));
      }
    } catch (error) {
      void window.showErrorMessage(error instanceof Error ? error.message : `${error}`);
    }
  }

  /** To the code of a row, where its lines are still as they were traced. */
  private async goTo(id: string, focus: boolean): Promise<void> {
    const places: Place[] = this.table?.rows.find((row) => row.id === id)?.places ?? [];
    for (const { file, ...place } of places) {
      const found = await this.api.request<PresentPlace | null>('mase/presentPlace', { path: file, ...place });
      if (found !== null) return show(found, focus);
    }
    const why = places.length > 0 ? 'its lines were edited; save the file to see them traced again' : 'nothing of it is in a file';
    void window.setStatusBarMessage(`MASE: there is no line to go to: ${why}`, SHOWN_MS);
  }

  private async save(text: string): Promise<void> {
    const home = workspace.getWorkspaceFolder(Uri.file(this.target.path))?.uri ?? Uri.joinPath(Uri.file(this.target.path), '..');
    const name = `${this.target.model.replace(/[^\w.-]+/g, '_')}-costs.csv`;
    const uri = await window.showSaveDialog({ defaultUri: Uri.joinPath(home, name), filters: { CSV: ['csv'] }, title: 'Save the Costs' });
    if (uri !== undefined) await workspace.fs.writeFile(uri, new TextEncoder().encode(text));
  }
}

function problemOf({ stale, complete }: CostTable): string | undefined {
  if (stale) return 'The file has changed, and its present text could not be traced: these are the costs of the text before.';
  return complete ? undefined : 'The model is still being traced: its operators are not counted yet.';
}

async function show({ uri, range }: PresentPlace, focus: boolean): Promise<void> {
  const document = await workspace.openTextDocument(Uri.parse(uri));
  const open = window.visibleTextEditors.find((editor) => editor.document === document);
  const viewColumn = open?.viewColumn ?? ViewColumn.One;
  const { start, end } = range;
  const selection = new Range(start.line, start.character, end.line, end.character);
  const editor = await window.showTextDocument(document, { viewColumn, preserveFocus: !focus });
  editor.selection = new Selection(selection.start, selection.start);
  editor.revealRange(selection, TextEditorRevealType.InCenterIfOutsideViewport);
}
