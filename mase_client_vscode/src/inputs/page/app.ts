/** The form: its content, the server's checks, and the user's actions. */
import { InputForm, InputTrial } from 'mase-client/records';
import { Host } from '../../webview/page/host';
import { misnamed, missing, said, textOf, textsOf, Texts } from '../draft';
import { FromPage, KeptForm, Sets, ToPage } from '../messages';
import { View } from './view';

/** How long the user must pause before the server is asked. */
const REST_MS = 250;

export class App {
  private readonly view: View;
  private sets: Sets = { path: '', model: '', sets: [], used: '', set: '' };
  private form: InputForm | null = null;
  private from = '';
  private texts: Texts = {};
  /** The last trial of exactly these fields; undefined while it is awaited. */
  private trial: InputTrial | undefined;
  private adding = false;
  private dirty = false;
  private asked = 0;
  private timer: number | undefined;

  constructor(private readonly host: Host<ToPage, FromPage, KeptForm>) {
    this.view = new View({
      typed: (field, text) => this.typed(field, text),
      selected: (set) => this.select(set),
      added: () => this.add(),
      named: () => this.judge(),
      apply: () => this.apply(),
      remove: () => this.host.post({ type: 'remove', set: this.sets.set }),
      revert: () => this.revert(),
      compare: () => this.host.post({ type: 'compare', set: this.sets.set }),
    });
  }

  receive(message: ToPage): void {
    if (message.type === 'notice') this.view.notice(message.text);
    else if (message.type === 'written') this.view.written(message.saved);
    else if (message.type === 'form') this.filled(message, message.trial);
    else if (message.number === this.asked) this.judged(message.trial);
  }

  /** Show a new form; texts that the user is typing stay. */
  private filled({ path, model, sets, used, set }: Sets, trial: InputTrial): void {
    const remembered = this.host.remembered;
    if (this.adding || (this.dirty && this.sets.set === set)) {
      this.sets = { ...this.sets, model, sets, used };
      return this.view.sets(this.sets, this.adding);
    }
    this.sets = { path, model, sets, used, set };
    this.form = trial.form;
    this.from = trial.arguments_from;
    this.texts = trial.form === null ? {} : textsOf(trial.form);
    this.dirty = false;
    this.trial = trial;
    this.view.show(this.sets, trial, this.texts);
    this.remember({});
    if (remembered !== undefined && remembered.set === set && this.form !== null) this.resume(remembered.texts);
  }

  private resume(texts: Texts): void {
    Object.entries(texts).forEach(([field, text]) => field in this.texts && this.texts[field] !== text && this.typed(field, text));
    this.view.texts(this.texts);
  }

  private typed(field: string, text: string): void {
    this.texts[field] = text;
    this.dirty = true;
    this.remember(this.texts);
    this.judge();
  }

  /** Make the server try the fields, once the user pauses. */
  private judge(): void {
    clearTimeout(this.timer);
    this.trial = undefined;
    this.asked++;
    if (this.form === null) return;
    const wrong = missing(this.form, this.texts);
    this.view.checking(wrong, this.adding ? misnamed(this.view.name, this.sets.sets) : undefined);
    if (Object.keys(wrong).length === 0) this.timer = setTimeout(() => this.ask(), REST_MS);
  }

  private ask(): void {
    if (this.form === null) return;
    this.host.post({ type: 'try', number: this.asked, set: this.set, said: said(this.form, this.texts, this.from) });
  }

  private judged(trial: InputTrial): void {
    this.trial = trial;
    this.view.judged(trial, this.dirty || this.adding, this.adding ? misnamed(this.view.name, this.sets.sets) : undefined);
  }

  private apply(): void {
    const ready = this.trial !== undefined && this.view.ready;
    if (!ready || this.trial === undefined) return;
    this.dirty = this.adding = false;
    this.remember({});
    this.host.post({ type: 'apply', set: this.trial.set, text: textOf(this.trial) });
    this.view.applied();
  }

  private select(set: string): void {
    this.dirty = this.adding = false;
    this.host.post({ type: 'select', set });
  }

  /** Start another set with the texts of this one. */
  private add(): void {
    this.adding = true;
    this.view.sets(this.sets, true);
    this.judge();
  }

  private revert(): void {
    this.remember({});
    this.select(this.sets.set);
  }

  private remember(texts: Texts): void {
    const { path, model, set } = this.sets;
    this.host.remember({ path, model, set, texts });
  }

  private get set(): string {
    return this.adding && misnamed(this.view.name, this.sets.sets) === undefined ? this.view.name.trim() : this.sets.set;
  }
}
