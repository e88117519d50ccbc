/** A panel with the cost table of a model: it follows the traces and the cursor. */
import { Disposable, TextEditor, Uri, commands, env, window } from 'vscode';
import { guarded, messageOf } from '../errors';
import { PassApi } from '../passes/api';
import { goTo, meantBy, presentPlace } from '../places';
import { PassTarget } from '../protocol';
import { CostPlace, CostRowsAt, CostTable } from 'mase-client/records';
import { PageKind, Panel } from '../webview/panel';
import { Brought, ModelPanel } from '../webview/panels';
import { save } from '../webview/saving';
import { FromPage, ToPage } from './messages';

export const KIND: PageKind = { type: 'mase.costs', page: 'costs' };
/** How long the cursor must rest. */
const REST_MS = 60;
const SHOWN_MS = 4000;

export class CostPanel implements ModelPanel {
  private readonly panel: Panel<ToPage, FromPage>;
  private readonly listeners: Disposable[];
  private table: CostTable | undefined;
  /** The row that a link requested, until it is shown. */
  private wanted: string | undefined;
  private timer: NodeJS.Timeout | undefined;
  /** The newest request; answers to older ones are ignored. */
  private asked = 0;
  private pointed = 0;
  /** Was the window reloaded, without any news of the file since? */
  private waits: boolean;

  constructor(
    private readonly target: PassTarget,
    private readonly api: PassApi,
    extension: Uri,
    brought?: Brought,
  ) {
    this.waits = brought !== undefined;
    this.panel = Panel.of(KIND, { title: `Costs: ${target.model}`, path: target.path }, extension, brought?.panel);
    this.listeners = [
      this.panel.onReady(() => void this.refresh(this.waits)),
      this.panel.onMessage((message) => void guarded(() => this.received(message))),
      window.onDidChangeTextEditorSelection(({ textEditor }) => this.moved(textEditor)),
      window.onDidChangeActiveTextEditor((editor) => editor && this.moved(editor)),
    ];
    this.panel.onClose(() => this.dispose());
  }

  get onClose(): Panel<ToPage, FromPage>['onClose'] {
    return this.panel.onClose;
  }

  get visible(): boolean {
    return this.panel.panel.visible;
  }

  shows(path: string): boolean {
    return path === this.target.path || (this.table?.rows ?? []).some(({ places }) => places.some(({ file }) => file === path));
  }

  /** Bring the panel to the front, scrolled to one row if requested; the focus stays. */
  reveal(row: string | undefined): void {
    this.panel.panel.reveal(undefined, true);
    this.wanted = row;
    this.select();
  }

  dispose(): void {
    clearTimeout(this.timer);
    Disposable.from(...this.listeners).dispose();
  }

  async refresh(quiet = false): Promise<void> {
    this.waits = quiet;
    const { path, model } = this.target;
    const asked = ++this.asked;
    try {
      const table = await this.api.costTable({ path, model });
      if (asked !== this.asked) return;
      this.table = table;
      this.waits = false;
      const problem = problemOf(table);
      this.panel.post({ type: 'table', table, ...(problem === undefined ? {} : { problem }) });
      this.select();
    } catch (error) {
      if (asked !== this.asked || quiet) return;
      this.panel.post({ type: 'nothing', problem: messageOf(error) });
    }
    const editor = window.visibleTextEditors.find(({ document }) => document.uri.fsPath === path);
    if (editor !== undefined) this.moved(editor);
  }

  /** Tell the page the row that a link requested, once it has a table. */
  private select(): void {
    if (this.wanted === undefined || this.table === undefined) return;
    if (this.panel.post({ type: 'select', id: this.wanted })) this.wanted = undefined;
  }

  private moved(editor: TextEditor): void {
    if (editor.document.languageId !== 'python') return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.point(editor), REST_MS);
  }

  private async point(editor: TextEditor): Promise<void> {
    const pointed = ++this.pointed;
    const params = { uri: editor.document.uri.toString(), position: meantBy(editor), path: this.target.path, model: this.target.model };
    const { ids } = await this.api.request<CostRowsAt>('mase/costRowsAt', params).catch(() => ({ ids: [] }));
    if (pointed === this.pointed) this.panel.post({ type: 'cursor', ids });
  }

  private async received(message: FromPage): Promise<void> {
    switch (message.type) {
      case 'goto':
        return this.goTo(message.id, message.focus);
      case 'copy':
        await env.clipboard.writeText(message.text);
        return void window.setStatusBarMessage(`MASE: ${message.rows} rows were copied to the clipboard`, SHOWN_MS);
      case 'save':
        return save(this.target, { what: 'costs', suffix: '-costs', ending: 'csv', kind: 'CSV' }, Buffer.from(message.text));
      case 'graph':
        return void (await commands.executeCommand('mase.showGraph', this.target));
      case 'device':
        return void (await commands.executeCommand('mase.pickDevice', this.target));
      case 'compare':
        return void (await commands.executeCommand('mase.compareCosts', this.target));
      case 'line':
        return this.goToFirst([{ file: message.file, line: message.line, column: 0, end_line: message.line, end_column: 0 }], message.focus);
    }
  }

  /** Go to the code of a row, if its lines are unedited since the trace. */
  private goTo(id: string, focus: boolean): Promise<void> {
    return this.goToFirst(this.table?.rows.find((row) => row.id === id)?.places ?? [], focus);
  }

  private async goToFirst(places: CostPlace[], focus: boolean): Promise<void> {
    for (const { file, ...place } of places) {
      const found = await presentPlace(this.api, { path: file, ...place });
      if (found !== undefined) return goTo(found, focus);
    }
    const why = places.length > 0 ? 'its lines were edited; save the file to trace them again' : 'it has no place in a file';
    void window.setStatusBarMessage(`MASE: there is no line to go to: ${why}`, SHOWN_MS);
  }
}

function problemOf({ stale, complete }: CostTable): string | undefined {
  if (stale) return 'The file has changed, and MASE could not trace its present text. These are the costs of the previous text.';
  return complete ? undefined : 'The model is still being traced: its operators are not counted yet.';
}
