/** Values and figures as texts, with sizes as numbers, because sets differ in them. */
import { exact, inBytes, scaled } from '../figures';
import { InputFigures, InputTrial, Value } from 'mase-client/records';

/** `f32[8, 3, 224, 224]`, `(f32[2], f32[2])`. */
export function sizes(value: Value | undefined): string {
  if (value === null || value === undefined) return 'None';
  if (Array.isArray(value)) return `${value[0]}[${value[1].join(', ')}]`;
  if ('tuple' in value) return `(${value.tuple.map(sizes).join(', ')})`;
  if ('dict' in value) return `{${Object.entries(value.dict).map(([key, each]) => `${key}: ${sizes(each)}`).join(', ')}}`;
  return value.python;
}

/** The same with the names of the sizes: `f32[B=8, 3, T=224]`. */
function namedSizes(value: Value | undefined): string {
  if (!Array.isArray(value)) return sizes(value);
  const names = value[2] ?? [];
  const size = (each: number, index: number) => (/^\d*$/.test(names[index] ?? '') ? `${each}` : `${names[index]}=${each}`);
  return `${value[0]}[${value[1].map(size).join(', ')}]`;
}

/** What was traced, in one sentence: `Traced Net with x: f32[B=4, T=128] → f32[4, 10] in 0.12 s.`; else which input prevents it. */
export function traced(model: string, trial: InputTrial): string {
  const wrong = trial.problems.filter(({ severity, field }) => severity === 'error' && field !== '');
  if (wrong.length > 0) return `Not traced, because of ${[...new Set(wrong.map(({ field }) => field.replace(/^\w+\./, '')))].join(', ')}.`;
  if (trial.inputs === null) return 'Not traced: the message above says why.';
  const given = Object.entries(trial.inputs).map(([name, value]) => `${name}: ${namedSizes(value)}`);
  const called = given.length === 0 ? `${model} without inputs` : `${model} with ${given.join(', ')}`;
  if (trial.outputs === null && trial.flops === null) return `The forward of ${called} fails.`;
  return `Traced ${called} → ${sizes(trial.outputs)} in ${(trial.seconds ?? 0).toFixed(2)} s.`;
}

/** Each text once, in order. */
export function alternatives(values: Value[]): string {
  return [...new Set(values.map(sizes))].join(' | ');
}

/** The figures of a set by name, without those of a forward that does not reach its end. */
export function figures({ outputs, parameters, flops, bytes }: InputFigures): [string, string][] {
  return [
    ['output', outputs === null && flops === null ? '' : sizes(outputs)],
    ['parameters', parameters === null ? '' : exact(parameters)],
    ['FLOPs', flops === null ? '' : scaled(flops)],
    ['bytes read and written', bytes === null ? '' : inBytes(bytes)],
  ];
}

/** The name of a set. */
export function nameOf(set: string): string {
  return set === '' ? 'without a name' : set;
}
