/** What a person has typed into the form, and what of it a comment has to say. */
import { Field, Form, Said, Trial } from './messages';

/** Where a call comes from that a comment has to repeat: from a comment, or because it was assumed. */
const REPEATED = new Set(['comment', 'search', 'usage']);
const NAME = /^\w[\w .+-]*$/;

/** Fields by name, such as `inputs.x`, with the text that each holds. */
export type Texts = Record<string, string>;

export function textsOf(form: Form): Texts {
  const all = (group: 'inputs' | 'arguments') => form[group].map((field): [string, string] => [`${group}.${field.name}`, field.text]);
  return Object.fromEntries([...all('arguments'), ...all('inputs')]);
}

/** What the fields say. The call is said where one was, or an argument is another one now. */
export function said(form: Form, texts: Texts, from: string): Said {
  const inputs = given(form.inputs, 'inputs', texts);
  const changed = form.arguments.some(({ name, text }) => text !== (texts[`arguments.${name}`] ?? ''));
  const names = given(form.arguments, 'arguments', texts);
  const calls = form.call !== '' && (changed || (REPEATED.has(from) && Object.keys(names).length > 0));
  return calls ? { inputs, arguments: names } : { inputs };
}

function given(fields: Field[], group: string, texts: Texts): Record<string, string> {
  const found = fields.map(({ name }): [string, string] => [name, (texts[`${group}.${name}`] ?? '').trim()]);
  return Object.fromEntries(found.filter(([, text]) => text !== ''));
}

/** Why a field cannot be as it is before anybody is asked: required, or without a text that could be edited. */
export function missing(form: Form, texts: Texts): Record<string, string> {
  const found: Record<string, string> = {};
  for (const group of ['inputs', 'arguments'] as const) {
    for (const { name, required, why } of form[group]) {
      const key = `${group}.${name}`;
      if (required && !why && (texts[key] ?? '').trim() === '') found[key] = `${name} is needed`;
    }
  }
  return found;
}

/** Why a set cannot have a name; undefined where it can. */
export function misnamed(name: string, sets: string[]): string | undefined {
  if (name.trim() === '') return 'A set needs a name';
  if (!NAME.test(name.trim())) return 'Use letters, digits, blanks and _ . + -';
  return sets.includes(name.trim()) ? `There is a set ${name.trim()} already` : undefined;
}

/** The text behind `mase:` of a trial's comment. */
export function textOf({ comment }: Trial): string {
  return comment.replace(/^mase(\[[^\]]*\])?:\s*/, '');
}
