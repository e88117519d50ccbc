/** The layout of the form. Every control is reached with the tab key; errors are shown at their fields. */
import { InputField, InputForm, InputProblem, InputTrial } from 'mase-client/records';
import { element } from '../../webview/page/elements';
import { Sets } from '../messages';
import { Texts } from '../draft';
import { figures, traced } from '../texts';

export interface Actions {
  typed(field: string, text: string): void;
  selected(set: string): void;
  added(): void;
  named(): void;
  apply(): void;
  remove(): void;
  revert(): void;
  compare(): void;
}

/** Source of a text -> its description. */
const SOURCES: Record<string, string> = {
  comment: 'from a comment',
  option: 'from an option',
  settings: 'from the settings',
  main: "from the file's own run",
  instance: 'from a variable of the file',
  usage: 'assumed: as it is created elsewhere',
  search: 'assumed: found by search',
  default: 'the defaults',
};
const SYNTAX = 'A tensor is its type and sizes: f32[B=2, 3, 224, 224]; whole numbers below a bound: i64[B, T=16] < 50257. A constant is Python: True, 0.5, None.';

export class View {
  private readonly set = element('select', { id: 'set', 'aria-label': 'Set of inputs' });
  private readonly add = element('button', { title: 'Another set that starts with the texts of this one' }, 'New set…');
  private readonly naming = element('input', { id: 'name', placeholder: 'name of the new set', 'aria-label': 'Name of the new set', spellcheck: 'false' });
  private readonly namingWrong = element('div', { class: 'wrong', id: 'name-wrong', role: 'alert' });
  private readonly compare = element('button', { title: 'Shapes and costs of two sets side by side' }, 'Compare…');
  private readonly fields = element('form', { id: 'fields' });
  private readonly problems = element('div', { id: 'problems', role: 'alert' });
  private readonly outcome = element('dl', { id: 'outcome', 'aria-live': 'polite' });
  private readonly comment = element('code', { id: 'comment' });
  private readonly applying = element('button', { id: 'apply', class: 'primary', type: 'submit', form: 'fields' }, 'Apply');
  private readonly removing = element('button', { id: 'remove', title: 'Remove the comment of this set from the file' }, 'Remove Comment');
  private readonly reverting = element('button', { id: 'revert', title: 'Back to the texts in the file' }, 'Revert');
  private readonly state = element('span', { id: 'state', 'aria-live': 'polite' });
  private model = '';

  constructor(private readonly actions: Actions) {
    const label = element('label', { for: 'set' }, 'Inputs');
    const bar = element('div', { class: 'toolbar' }, label, this.set, this.naming, this.add, element('span', { class: 'space' }), this.compare);
    const foot = element('footer', {}, this.applying, this.reverting, this.removing, this.state);
    const result = element('section', { 'aria-label': 'Result' }, this.problems, this.outcome, this.comment);
    document.body.append(bar, this.namingWrong, element('main', {}, this.fields, result), foot);
    this.fields.addEventListener('submit', (event) => (event.preventDefault(), this.actions.apply()));
    this.set.addEventListener('change', () => this.actions.selected(this.set.value));
    this.add.addEventListener('click', () => (this.actions.added(), this.naming.focus()));
    this.naming.addEventListener('input', () => this.actions.named());
    this.naming.addEventListener('keydown', ({ key }) => key === 'Enter' && this.actions.apply());
    this.compare.addEventListener('click', () => this.actions.compare());
    this.removing.addEventListener('click', () => this.actions.remove());
    this.reverting.addEventListener('click', () => this.actions.revert());
    this.ready = false;
    this.naming.hidden = true;
    for (const each of this.later) each.disabled = true;
    this.state.textContent = 'Tracing the model to find its inputs…';
  }

  /** Disable the controls that have no meaning before there is a form. */
  private get later(): (HTMLButtonElement | HTMLSelectElement)[] {
    return [this.set, this.add, this.compare, this.removing, this.reverting];
  }

  get name(): string {
    return this.naming.value;
  }

  get ready(): boolean {
    return !this.applying.disabled;
  }

  private set ready(ready: boolean) {
    this.applying.disabled = !ready;
  }

  notice(text: string): void {
    this.problems.replaceChildren(element('p', { class: 'wrong' }, text));
    this.state.textContent = '';
  }

  sets({ model, sets, set, used }: Sets, adding: boolean): void {
    this.model = model;
    const option = (value: string, text: string) => element('option', { value, selected: value === set }, value === used ? `${text} (used)` : text);
    this.set.replaceChildren(option('', sets.length === 0 ? 'as found' : 'without a name'), ...sets.map((name) => option(name, name)));
    this.naming.hidden = !adding;
    this.add.hidden = adding;
    this.compare.disabled = sets.length === 0;
  }

  show(sets: Sets, trial: InputTrial, texts: Texts): void {
    for (const each of this.later) each.disabled = false;
    this.naming.value = '';
    this.namingWrong.textContent = '';
    this.sets(sets, false);
    this.fields.replaceChildren(...(trial.form === null ? [] : this.groups(trial.form, trial, texts)));
    this.judged(trial, false, undefined);
    this.comment.textContent = '';
    this.removing.disabled = trial.inputs_from !== 'comment' && trial.arguments_from !== 'comment';
    if (document.activeElement === document.body) this.fields.querySelector('input')?.focus();
  }

  texts(texts: Texts): void {
    this.fields.querySelectorAll('input').forEach((input) => (input.value = texts[input.name] ?? input.value));
  }

  /** The fields are not checked yet. `wrong`: the errors known already. */
  checking(wrong: Record<string, string>, name: string | undefined): void {
    this.ready = false;
    this.state.textContent = Object.keys(wrong).length > 0 ? '' : `Tracing ${this.model}…`;
    this.mark(Object.entries(wrong).map(([field, message]) => ({ severity: 'error', field, message })));
    this.namingWrong.textContent = this.naming.value === '' ? '' : (name ?? '');
  }

  judged(trial: InputTrial, changed: boolean, name: string | undefined): void {
    const errors = trial.problems.filter(({ severity }) => severity === 'error');
    this.mark(trial.problems);
    const all: [string, string][] = [['inputs', trial.found], ...figures(trial)];
    const told = trial.form === null ? [] : all.filter(([, text]) => text !== '');
    this.outcome.replaceChildren(...told.flatMap(([term, text]) => [element('dt', {}, term), element('dd', {}, text)]));
    this.comment.textContent = changed && trial.comment ? `# ${trial.comment}` : '';
    this.state.textContent = name ?? traced(this.model, trial);
    this.namingWrong.textContent = this.naming.value === '' ? '' : (name ?? '');
    this.ready = changed && errors.length === 0 && name === undefined && trial.comment !== '';
  }

  /** The comment is written. saved: the file is, too, and so is traced now. */
  written(saved: boolean): void {
    this.state.textContent = saved ? `Written. Tracing ${this.model}…` : 'Written; it takes effect at the next save.';
  }

  applied(): void {
    this.ready = false;
    this.state.textContent = 'Writing…';
  }

  private groups(form: InputForm, trial: InputTrial, texts: Texts): HTMLElement[] {
    const inputs = this.group('Inputs', 'inputs', form.inputs, SOURCES[trial.inputs_from] ?? trial.inputs_from, texts);
    const made = this.group(`Arguments of ${form.call}`, 'arguments', form.arguments, SOURCES[trial.arguments_from] ?? trial.arguments_from, texts);
    return [inputs, element('p', { class: 'hint' }, SYNTAX), ...(form.arguments.length > 0 ? [made] : [])];
  }

  private group(title: string, group: string, fields: InputField[], source: string, texts: Texts): HTMLElement {
    const legend = element('legend', {}, title, element('span', { class: 'source' }, source));
    return element('fieldset', {}, legend, ...fields.map((field) => this.row(`${group}.${field.name}`, field, texts)));
  }

  private row(key: string, field: InputField, texts: Texts): HTMLElement {
    const optional = field.default === '' ? (field.required ? 'needed' : 'not given') : `${field.default} by default`;
    const input = element('input', {
      id: key,
      name: key,
      value: texts[key] ?? '',
      placeholder: field.why ? `cannot be written: ${field.why}` : optional,
      'aria-describedby': `${key}-wrong`,
      spellcheck: 'false',
      autocomplete: 'off',
    });
    input.addEventListener('input', () => this.actions.typed(key, input.value));
    const wrong = element('div', { class: 'wrong', id: `${key}-wrong`, role: 'alert' });
    return element('div', { class: 'row' }, element('label', { for: key }, field.name), element('div', {}, input, wrong));
  }

  private mark(problems: InputProblem[]): void {
    this.fields.querySelectorAll('input').forEach((input) => {
      const own = problems.find(({ field }) => field === input.name);
      input.setAttribute('aria-invalid', `${own !== undefined}`);
      const place = document.getElementById(`${input.name}-wrong`);
      place?.replaceChildren(...marked(own?.message ?? ''));
    });
    const left = problems.filter(({ field }) => document.getElementById(field) === null);
    this.problems.replaceChildren(...left.map(({ severity, message }) => element('p', { class: severity === 'error' ? 'wrong' : 'doubtful' }, ...marked(message))));
  }
}

/** A message with the text between backticks as code. */
function marked(message: string): (HTMLElement | string)[] {
  const parts = message.split('`');
  return parts.length % 2 === 0 ? [message] : parts.map((part, index) => (index % 2 === 1 ? element('code', {}, part) : part));
}
