/** The texts that the user typed into the form, and which of them a comment needs. */
import { InputField, InputForm, InputTrial } from 'mase-client/records';
import { Said } from './messages';

/** Sources of a call that a comment must repeat: another comment, or an assumption. */
const REPEATED = new Set(['comment', 'search', 'usage']);
const NAME = /^\w[\w .+-]*$/;

/** Fields by name, such as `inputs.x`, with the text that each holds. */
export type Texts = Record<string, string>;

export function textsOf(form: InputForm): Texts {
  const all = (group: 'inputs' | 'arguments') => form[group].map((field): [string, string] => [`${group}.${field.name}`, field.text]);
  return Object.fromEntries([...all('arguments'), ...all('inputs')]);
}

/** The content of the fields. The call is included if a comment had one, or if an argument has changed. */
export function said(form: InputForm, texts: Texts, from: string): Said {
  const inputs = given(form.inputs, 'inputs', texts);
  const changed = form.arguments.some(({ name, text }) => text !== (texts[`arguments.${name}`] ?? ''));
  const names = given(form.arguments, 'arguments', texts);
  const calls = form.call !== '' && (changed || (REPEATED.has(from) && Object.keys(names).length > 0));
  return calls ? { inputs, arguments: names } : { inputs };
}

function given(fields: InputField[], group: string, texts: Texts): Record<string, string> {
  const found = fields.map(({ name }): [string, string] => [name, (texts[`${group}.${name}`] ?? '').trim()]);
  return Object.fromEntries(found.filter(([, text]) => text !== ''));
}

/** Why a field is invalid before the server checks it: it is required, or has no text that could be edited. */
export function missing(form: InputForm, texts: Texts): Record<string, string> {
  const found: Record<string, string> = {};
  for (const group of ['inputs', 'arguments'] as const) {
    for (const { name, required, why } of form[group]) {
      const key = `${group}.${name}`;
      if (required && !why && (texts[key] ?? '').trim() === '') found[key] = `${name} is needed`;
    }
  }
  return found;
}

/** Why a set cannot have a name; undefined if it can. */
export function misnamed(name: string, sets: string[]): string | undefined {
  if (name.trim() === '') return 'A set needs a name';
  if (!NAME.test(name.trim())) return 'Use letters, digits, blanks and _ . + -';
  return sets.includes(name.trim()) ? `There is already a set ${name.trim()}` : undefined;
}

/** The text after `mase:` in a trial's comment. */
export function textOf({ comment }: InputTrial): string {
  return comment.replace(/^mase(\[[^\]]*\])?:\s*/, '');
}
