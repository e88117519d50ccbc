/** Shapes and figures as texts, as the hints and hovers have them. */
import { Graph, Value } from './messages';

/** Most members of a tuple or a dict that are named. */
const MOST = 3;

/** `f32[B, T, 128]`; a tuple of equal ones is `(3 of f32[B, T, 128])`. `format`: what passes made of the element type. */
export function valueText(value: Value | undefined, format?: string | null): string {
  if (value === undefined) return '';
  if (value === null) return 'None';
  if (Array.isArray(value)) return `${format ?? value[0]}[${(value[2] ?? value[1]).join(', ')}]`;
  if ('tuple' in value) return `(${members(value.tuple.map((each) => valueText(each)))})`;
  if ('dict' in value) return `{${some(Object.entries(value.dict).map(([key, each]) => `${key}: ${valueText(each)}`))}}`;
  return value.python;
}

/** What an operation gives, as it is after the passes. */
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

/** `38.2 dB`; `exact` where nothing differs. */
export function sqnrText(sqnr: number | string): string {
  return typeof sqnr === 'number' ? `${sqnr.toFixed(1)} dB` : sqnr === 'inf' ? 'exact' : sqnr;
}

/** `1 operation`, `149 operations`, `10,001 operations`. */
export function counted(number: number, noun: string): string {
  return `${number.toLocaleString('en')} ${noun}${number === 1 ? '' : 's'}`;
}
