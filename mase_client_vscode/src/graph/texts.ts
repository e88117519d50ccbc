/** Shapes and figures as texts, in the form of the hints and hovers. */
import { Value } from 'mase-client/records';
import { Graph } from './messages';

/** Maximum number of members of a tuple or a dict in a text. */
const MOST = 3;

/** `f32[B, T, 128]`; a tuple of equal ones is `(3 of f32[B, T, 128])`. `format`: the number format after passes. */
export function valueText(value: Value | undefined, format?: string | null): string {
  if (value === undefined) return '';
  if (value === null) return 'None';
  if (Array.isArray(value)) return `${format ?? value[0]}[${(value[2] ?? value[1]).join(', ')}]`;
  if ('tuple' in value) return `(${members(value.tuple.map((each) => valueText(each)))})`;
  if ('dict' in value) return `{${some(Object.entries(value.dict).map(([key, each]) => `${key}: ${valueText(each)}`))}}`;
  return value.python;
}

/** The result of an operation after the passes. */
export function resultText({ columns, values }: Graph, index: number): string {
  return valueText(values[columns.value[index] ?? -1], columns.format[index]);
}

function members(texts: string[]): string {
  const [first] = texts;
  return texts.length > 1 && texts.every((text) => text === first) ? `${texts.length} of ${first}` : some(texts);
}

function some(texts: string[]): string {
  return texts.length > MOST ? `${texts.slice(0, MOST).join(', ')}, …` : texts.join(', ');
}

/** `38.2 dB`; `exact` if nothing differs. */
export function sqnrText(sqnr: number | string): string {
  return typeof sqnr === 'number' ? `${sqnr.toFixed(1)} dB` : sqnr === 'inf' ? 'exact' : sqnr;
}

/** `1 operation`, `149 operations`, `10,001 operations`. */
export function counted(number: number, noun: string): string {
  return `${number.toLocaleString('en')} ${noun}${number === 1 ? '' : 's'}`;
}
