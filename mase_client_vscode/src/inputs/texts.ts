/** Values and figures as texts: sizes as numbers, since sets differ in them. */
import { exact, inBytes, scaled } from '../figures';
import { Figures, Value } from './messages';

/** `f32[8, 3, 224, 224]`, `(f32[2], f32[2])`. */
export function sizes(value: Value | undefined): string {
  if (value === null || value === undefined) return 'None';
  if (Array.isArray(value)) return `${value[0]}[${value[1].join(', ')}]`;
  if ('tuple' in value) return `(${value.tuple.map(sizes).join(', ')})`;
  if ('dict' in value) return `{${Object.entries(value.dict).map(([key, each]) => `${key}: ${sizes(each)}`).join(', ')}}`;
  return value.python;
}

/** Each text once, in order. */
export function alternatives(values: Value[]): string {
  return [...new Set(values.map(sizes))].join(' | ');
}

/** The figures of a set, name by name; nothing for what a forward that does not come to its end would give. */
export function figures({ outputs, parameters, flops, bytes }: Figures): [string, string][] {
  return [
    ['output', outputs === null && flops === null ? '' : sizes(outputs)],
    ['parameters', parameters === null ? '' : exact(parameters)],
    ['FLOPs', flops === null ? '' : scaled(flops)],
    ['bytes read and written', bytes === null ? '' : inBytes(bytes)],
  ];
}

/** How a set is called. */
export function nameOf(set: string): string {
  return set === '' ? 'without a name' : set;
}
