/** The form for one model's inputs: the server tries them, and the panel writes them into the file. */
import { Disposable, Uri, commands } from 'vscode';
import { messageOf } from '../errors';
import { documentOf } from '../notebooks';
import { PassTarget } from '../protocol';
import { PageKind, Panel } from '../webview/panel';
import { Brought, ModelPanel } from '../webview/panels';
import { InputsApi } from './api';
import { FromPage, KeptForm, Said, ToPage } from './messages';

export const KIND: PageKind = { type: 'mase.inputs', page: 'inputs' };

export class InputsPanel implements ModelPanel {
  private readonly page: Panel<ToPage, FromPage>;
  private readonly listeners: Disposable[];
  /** The set in the form; undefined for the one in use. */
  private set: string | undefined;
  private asked = 0;
  /** Was the window reloaded, without any news of the file since? */
  private waits: boolean;

  constructor(
    readonly target: PassTarget,
    private readonly api: InputsApi,
    extension: Uri,
    brought?: Brought,
  ) {
    this.waits = brought !== undefined;
    this.page = Panel.of(KIND, { title: `Inputs of ${target.model}`, path: target.path }, extension, brought?.panel);
    this.set = (brought?.kept as KeptForm | undefined)?.set;
    this.listeners = [this.page.onReady(() => void this.refresh(this.waits)), this.page.onMessage((message) => void this.receive(message))];
    this.page.onClose(() => this.dispose());
  }

  get onClose(): Panel<ToPage, FromPage>['onClose'] {
    return this.page.onClose;
  }

  /** Bring the panel to the front, with the keyboard focus. */
  reveal(): void {
    this.page.panel.reveal(undefined, false);
  }

  dispose(): void {
    Disposable.from(...this.listeners).dispose();
  }

  get visible(): boolean {
    return this.page.panel.visible;
  }

  shows(path: string): boolean {
    return path === this.target.path;
  }

  async refresh(quiet = false): Promise<void> {
    this.waits = quiet;
    const asked = ++this.asked;
    try {
      const { model, sets, set: used } = await this.api.known(this.target);
      const set = this.set !== undefined && ['', ...sets].includes(this.set) ? this.set : used;
      const trial = await this.api.tried(this.target, set);
      this.waits = false;
      if (asked === this.asked) this.page.post({ type: 'form', path: this.target.path, model, sets, used, set, trial });
    } catch (error) {
      if (asked === this.asked && !quiet) this.notice(error);
    }
  }

  private async receive(message: FromPage): Promise<void> {
    try {
      if (message.type === 'select') await this.select(message.set);
      else if (message.type === 'try') await this.tried(message.number, message.set, message.said);
      else if (message.type === 'apply') await this.write(message.set, message.text);
      else if (message.type === 'remove') await this.write(message.set, '');
      else await commands.executeCommand('mase.compareInputs', { ...this.target, set: message.set });
    } catch (error) {
      this.notice(error);
    }
  }

  private select(set: string): Promise<void> {
    this.set = set;
    return this.refresh();
  }

  private async tried(number: number, set: string, said: Said): Promise<void> {
    const trial = await this.api.tried(this.target, set, said);
    this.page.post({ type: 'trial', number, trial });
  }

  /** A saved file is saved with its new comment, so that it takes effect at once; a file with other changes is not. */
  private async write(set: string, text: string): Promise<void> {
    const document = await documentOf(Uri.file(this.target.path));
    const saved = !document.isDirty;
    if (!(await this.api.write(this.target, set, text))) return;
    this.set = text === '' ? undefined : set;
    this.page.post({ type: 'written', saved });
    if (saved) await document.save();
  }

  private notice(error: unknown): void {
    this.page.post({ type: 'notice', text: messageOf(error) });
  }
}
