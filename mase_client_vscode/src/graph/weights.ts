/** The weights of a box as texts: which it has, their figures, and the intervals of a histogram. */
import { exact, share, significant } from '../figures';
import { ParameterStatistics } from 'mase-client/records';
import { Graph } from './messages';
import { counted } from './texts';
import { Box } from './tree';

/** The path of the module or the parameter whose weights a box stands for; undefined if it has none. */
export function weightsOf(box: Box, { columns }: Graph): string | undefined {
  if (box.kind === 'operation') return (columns.parameters[box.first] ?? 0) > 0 ? columns.target[box.first] : undefined;
  return columns.parameters.slice(box.first, box.end).some((elements) => elements > 0) ? box.path : undefined;
}

export function figuresOf({ count, mean, std, min, max, zeros, not_finite }: ParameterStatistics): [name: string, text: string][] {
  const known = { Mean: mean, Std: std, Min: min, Max: max };
  const found: [string, string][] = [['Count', exact(count)]];
  for (const [name, value] of Object.entries(known)) if (value !== null) found.push([name, significant(value)]);
  if (zeros !== null) found.push(['Zeros', share(zeros, 1)]);
  if (not_finite) found.push(['Not finite', exact(not_finite)]);
  return found;
}

/** Why a parameter has no histogram; undefined if it has one. */
export function reasonOf({ random, bins, count, not_finite, dtype }: ParameterStatistics): string | undefined {
  if (random) return 'Random: the model loads no file that has its values.';
  if (bins.length > 0) return undefined;
  if (count === 0) return 'It has no elements.';
  return not_finite === count ? 'None of its values is finite.' : `Values of the type ${dtype} are not summarised.`;
}

/** `-0.5 to -0.25: 12 values`: a bar of the histogram. */
export function intervalOf({ min, max, bins }: ParameterStatistics, bin: number): string {
  const [low, high] = [min ?? 0, max ?? 0];
  const at = (number: number) => significant(low + ((high - low) * number) / bins.length);
  const interval = low < high ? `${at(bin)} to ${at(bin + 1)}` : at(0);
  return `${interval}: ${counted(bins[bin] ?? 0, 'value')}`;
}
