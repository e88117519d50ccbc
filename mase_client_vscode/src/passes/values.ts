/** The user's arguments of a pass: the typed texts, and the values that the server read from them. */
import { Pass, PassArgument } from 'mase-client/records';

export interface Given {
  text: string;
  value: unknown;
}

export type Values = Record<string, Given>;

/** The selection is not an argument here: it comes from the cursor. */
const SELECTION = 'only';

export function asked(pass: Pass): PassArgument[] {
  return pass.arguments.filter(({ name }) => name !== SELECTION);
}

/** Further arguments, which the pass does not name. */
export function further(pass: Pass, values: Values): string[] {
  const named = new Set(pass.arguments.map(({ name }) => name));
  return Object.keys(values).filter((name) => !named.has(name));
}

export function missing(pass: Pass, values: Values): PassArgument[] {
  return asked(pass).filter(({ name, required }) => required && values[name] === undefined);
}

/** `12`, given or by default; `needed`. */
export function shown(argument: PassArgument, values: Values): string {
  const given = values[argument.name];
  if (given !== undefined) return given.text;
  if (argument.required) return 'needed';
  return argument.default === null ? '' : text(argument.default);
}

/** `default=fixed(8,4), by=type`; '' if all are as declared. */
export function summary(values: Values): string {
  return Object.entries(values)
    .map(([name, { text }]) => `${name}=${text}`)
    .join(', ');
}

export function plain(values: Values): Record<string, unknown> {
  return Object.fromEntries(Object.entries(values).map(([name, { value }]) => [name, value]));
}

export function text(value: unknown): string {
  return typeof value === 'string' ? value : Array.isArray(value) ? value.join(', ') : JSON.stringify(value);
}
