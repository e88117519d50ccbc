/** One model's graph in a panel: kept up to date, and in step with the cursor. */
import { Disposable, LogOutputChannel, Position, Range, Selection, TextEditor, TextEditorRevealType, Uri, ViewColumn, WebviewPanel, commands, window, workspace } from 'vscode';
import { PassTarget } from '../protocol';
import { PageKind, Panel } from '../webview/panel';
import { GraphApi } from './api';
import { FromPage, Graph, ToPage } from './messages';

export const KIND: PageKind = { type: 'mase.graph', page: 'graph', allow: ['worker-src blob:', 'img-src blob:'] };
/** How long the cursor has to rest. */
const REST_MS = 60;
const BROKEN = 'The present text has an error: this is the graph from before it.';
const FILTERS = { svg: { 'SVG pictures': ['svg'] }, png: { 'PNG pictures': ['png'] } };

export class GraphPanel implements Disposable {
  private readonly page: Panel<ToPage, FromPage>;
  private readonly listeners: Disposable[];
  private graph: Graph | undefined;
  private wanted: string | undefined;
  private asked = 0;
  /** Where the page sent the cursor: several operations may begin there, but this one is meant. */
  private went: { row: number; uri: string; start: Position } | undefined;
  private timer: NodeJS.Timeout | undefined;
  private moved = false;

  constructor(
    readonly target: PassTarget,
    private readonly api: GraphApi,
    private readonly log: LogOutputChannel,
    private readonly extension: Uri,
    brought?: WebviewPanel,
  ) {
    const { model } = target;
    this.page = brought === undefined ? Panel.open(KIND, `Graph of ${model}`, extension) : new Panel(brought, KIND, extension);
    this.listeners = [
      this.page.onReady(() => void this.begin()),
      this.page.onMessage((message) => void this.receive(message).catch((error: unknown) => this.log.warn(`The graph of ${model}: ${error}`))),
      window.onDidChangeTextEditorSelection(({ textEditor }) => this.follow(textEditor, true)),
    ];
    this.page.onClose(() => this.dispose());
  }

  get onClose(): Panel<ToPage, FromPage>['onClose'] {
    return this.page.onClose;
  }

  dispose(): void {
    clearTimeout(this.timer);
    Disposable.from(...this.listeners).dispose();
  }

  /** Bring it to the front, and show one module, if one is named. */
  reveal(scope: string | undefined): void {
    this.wanted = scope;
    this.page.panel.reveal(undefined, scope === undefined);
    if (this.graph !== undefined) this.showWanted();
  }

  /** Something else is known of these files. */
  changed(uris: string[]): void {
    const own = new Set([this.target.path, ...(this.graph?.files ?? []).map(({ path }) => path)]);
    // A page that is hidden asks for everything when it is shown.
    if (this.page.panel.visible && uris.some((uri) => own.has(Uri.parse(uri).fsPath))) void this.refresh();
  }

  private async begin(): Promise<void> {
    const worker = await workspace.fs.readFile(Uri.joinPath(this.extension, 'dist', 'pages', 'layout.js'));
    this.page.post({ type: 'layout', source: new TextDecoder().decode(worker) });
    if (this.graph !== undefined) this.page.post({ type: 'graph', graph: this.graph });
    await this.refresh();
    this.showWanted();
  }

  private async refresh(): Promise<void> {
    const asked = ++this.asked;
    try {
      const graph = await this.api.graph(this.target);
      const shorter = this.graph !== undefined && graph.columns.row.length < this.graph.columns.row.length;
      // Whether it ends at an error is known once its trace has ended, which is told too.
      if (shorter && !graph.complete) return;
      const broken = shorter && (await this.api.hasErrors(this.target.path));
      if (asked !== this.asked) return;
      if (broken) return void this.page.post({ type: 'notice', text: BROKEN });
      if (graph.sha256 !== this.graph?.sha256) this.went = undefined; // its rows may be others
      this.graph = graph;
      this.page.post({ type: 'graph', graph });
      const editor = window.activeTextEditor ?? window.visibleTextEditors.find(({ document }) => document.uri.fsPath === this.target.path);
      if (editor !== undefined) this.follow(editor, false);
    } catch (error) {
      if (asked === this.asked) this.page.post({ type: 'notice', text: error instanceof Error ? error.message : `${error}` });
    }
  }

  private showWanted(): void {
    if (this.wanted !== undefined && this.page.post({ type: 'show', scope: this.wanted })) this.wanted = undefined;
  }

  /** `moved`: did the cursor move, or is it only the graph that is another one? */
  private follow(editor: TextEditor, moved: boolean): void {
    if (editor.document.languageId !== 'python') return;
    clearTimeout(this.timer);
    this.moved ||= moved;
    this.timer = setTimeout(() => void this.tellCursor(editor), REST_MS);
  }

  private async tellCursor({ document, selection }: TextEditor): Promise<void> {
    if (this.graph === undefined) return;
    const { moved } = this;
    this.moved = false;
    const { went } = this;
    const there = went !== undefined && went.uri === document.uri.toString() && went.start.isEqual(selection.active);
    const rows = there ? [went.row] : await this.api.rowsAt(this.graph, document.uri, selection.active).catch(() => []);
    this.page.post({ type: 'cursor', rows, moved });
  }

  private async receive(message: FromPage): Promise<void> {
    if (message.type === 'go') await this.go(message.row, message.focus);
    else if (message.type === 'export') await this.save(message.format, message.data);
    else if (message.type === 'costs') await commands.executeCommand('mase.showCosts', this.target);
    else this.log.debug(`The graph of ${this.target.model}: ${message.boxes} boxes in ${Math.round(message.milliseconds)} ms`);
  }

  /** Show an operation's code beside the graph; the person goes there only if they want to. */
  private async go(row: number, focus: boolean): Promise<void> {
    const place = this.graph && (await this.api.place(this.graph, row));
    if (place === undefined) return;
    const open = window.visibleTextEditors.find(({ document }) => document.uri.toString() === place.uri.toString());
    const viewColumn = open?.viewColumn ?? ViewColumn.One;
    const editor = await window.showTextDocument(place.uri, { viewColumn, preserveFocus: !focus, preview: open === undefined });
    const { start } = place.range;
    this.went = { row, uri: place.uri.toString(), start };
    editor.selection = new Selection(start, start);
    editor.revealRange(new Range(start, start), TextEditorRevealType.InCenterIfOutsideViewport);
  }

  private async save(format: 'svg' | 'png', data: string): Promise<void> {
    const { path, model } = this.target;
    const defaultUri = Uri.joinPath(Uri.file(path), '..', `${model.replace(/\W+/g, '_')}.${format}`);
    const uri = await window.showSaveDialog({ defaultUri, filters: FILTERS[format], title: `Save the graph of ${model}` });
    if (uri !== undefined) await workspace.fs.writeFile(uri, Buffer.from(data, format === 'png' ? 'base64' : 'utf8'));
  }
}
