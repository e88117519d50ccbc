/** One model's graph in a panel: kept up to date, and in step with the cursor. */
import { Disposable, LogOutputChannel, Memento, Position, TextEditor, Uri, commands, window, workspace } from 'vscode';
import { messageOf } from '../errors';
import { goTo, meantBy } from '../places';
import { PassTarget } from '../protocol';
import { PageKind, Panel } from '../webview/panel';
import { Brought, ModelPanel } from '../webview/panels';
import { save } from '../webview/saving';
import { GraphApi } from './api';
import { Choices, FromPage, Graph, ToPage, USUAL } from './messages';

export const KIND: PageKind = { type: 'mase.graph', page: 'graph', allow: ['worker-src blob:', 'img-src blob:'] };
/** How long the cursor must rest. */
const REST_MS = 60;
const BROKEN = 'The present text has an error: this is the graph from before it.';
/** The key of the choices in the extension's memory. */
const CHOICES = 'graph.choices';
const KINDS = { svg: 'SVG pictures', png: 'PNG pictures' };

export class GraphPanel implements ModelPanel {
  private readonly page: Panel<ToPage, FromPage>;
  private readonly listeners: Disposable[];
  private graph: Graph | undefined;
  private wanted: string | undefined;
  private asked = 0;
  /** The operation that the page sent the cursor to: several may begin there, but this one is meant. */
  private went: { row: number; uri: string; start: Position } | undefined;
  private timer: NodeJS.Timeout | undefined;
  private moved = false;
  /** Was the window reloaded, without any news of the file since? */
  private waits: boolean;

  constructor(
    readonly target: PassTarget,
    private readonly api: GraphApi,
    private readonly log: LogOutputChannel,
    private readonly extension: Uri,
    private readonly memory: Memento,
    brought?: Brought,
  ) {
    const { model } = target;
    this.waits = brought !== undefined;
    this.page = Panel.of(KIND, { title: `Graph of ${model}`, path: target.path }, extension, brought?.panel);
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

  /** Bring the panel to the front, and show one module, if one is given. */
  reveal(scope: string | undefined): void {
    this.wanted = scope;
    this.page.panel.reveal(undefined, scope === undefined);
    if (this.graph !== undefined) this.showWanted();
  }

  get visible(): boolean {
    return this.page.panel.visible;
  }

  shows(path: string): boolean {
    return path === this.target.path || (this.graph?.files ?? []).some((file) => file.path === path);
  }

  private async begin(): Promise<void> {
    const worker = await workspace.fs.readFile(Uri.joinPath(this.extension, 'dist', 'pages', 'layout.js'));
    this.page.post({ type: 'layout', source: new TextDecoder().decode(worker) });
    this.page.post({ type: 'choices', choices: { ...USUAL, ...this.memory.get<Partial<Choices>>(CHOICES) } });
    if (this.graph !== undefined) this.page.post({ type: 'graph', graph: this.graph });
    await this.refresh(this.waits);
    this.showWanted();
  }

  async refresh(quiet = false): Promise<void> {
    this.waits = quiet;
    const asked = ++this.asked;
    try {
      const graph = await this.api.graph(this.target);
      const shorter = this.graph !== undefined && graph.columns.row.length < this.graph.columns.row.length;
      // Only the end of a trace, which is also reported, tells whether it found an error.
      if (shorter && !graph.complete) return;
      const broken = shorter && (await this.api.hasErrors(this.target.path));
      if (asked !== this.asked) return;
      if (broken) return void this.page.post({ type: 'notice', text: BROKEN });
      if (graph.sha256 !== this.graph?.sha256) this.went = undefined; // its rows may differ
      this.graph = graph;
      this.waits = false;
      this.page.post({ type: 'graph', graph });
      const editor = window.activeTextEditor ?? window.visibleTextEditors.find(({ document }) => document.uri.fsPath === this.target.path);
      if (editor !== undefined) this.follow(editor, false);
    } catch (error) {
      if (asked === this.asked && !quiet) this.page.post({ type: 'notice', text: messageOf(error) });
    }
  }

  private showWanted(): void {
    if (this.wanted !== undefined && this.page.post({ type: 'show', scope: this.wanted })) this.wanted = undefined;
  }

  /** `moved`: did the cursor move, or has only the graph changed? */
  private follow(editor: TextEditor, moved: boolean): void {
    if (editor.document.languageId !== 'python') return;
    clearTimeout(this.timer);
    this.moved ||= moved;
    this.timer = setTimeout(() => void this.tellCursor(editor), REST_MS);
  }

  private async tellCursor(editor: TextEditor): Promise<void> {
    if (this.graph === undefined) return;
    const { moved } = this;
    this.moved = false;
    const [{ went }, { uri }, position] = [this, editor.document, meantBy(editor)];
    const there = went !== undefined && went.uri === uri.toString() && went.start.isEqual(position);
    const rows = there ? [went.row] : await this.api.rowsAt(this.graph, uri, position).catch(() => []);
    this.page.post({ type: 'cursor', rows, moved });
  }

  private save(ending: 'svg' | 'png', data: string): Promise<void> {
    return save(this.target, { what: 'graph', ending, kind: KINDS[ending] }, Buffer.from(data, ending === 'png' ? 'base64' : 'utf8'));
  }

  private async receive(message: FromPage): Promise<void> {
    if (message.type === 'go') await this.go(message.row, message.focus);
    else if (message.type === 'export') await this.save(message.format, message.data);
    else if (message.type === 'weights') await this.tellWeights(message.of);
    else if (message.type === 'choose') await this.memory.update(CHOICES, message.choices);
    else if (message.type === 'costs') await commands.executeCommand('mase.showCosts', this.target);
    else this.log.debug(`The graph of ${this.target.model}: ${message.boxes} boxes in ${Math.round(message.milliseconds)} ms`);
  }

  private async tellWeights(of: string): Promise<void> {
    try {
      this.page.post({ type: 'weights', of, statistics: await this.api.weights(this.target, of) });
    } catch (error) {
      this.page.post({ type: 'weights', of, problem: messageOf(error) });
    }
  }

  /** Show an operation's code beside the graph; the focus moves there only on request. */
  private async go(row: number, focus: boolean): Promise<void> {
    const place = this.graph && (await this.api.place(this.graph, row));
    if (place === undefined) return;
    this.went = { row, uri: place.uri.toString(), start: place.range.start };
    await goTo(place, focus);
  }
}
