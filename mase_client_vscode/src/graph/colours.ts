/** The colour of a box shows the family of its operator, its cost, its number format, or its error. */
import { inGB, inTime, scaled } from '../figures';
import { Value } from 'mase-client/records';
import { Graph } from './messages';
import { Box } from './tree';
import { sqnrText } from './texts';

export const MODES = { family: 'Operator', cost: 'FLOPs', format: 'Number format', error: 'Quantisation error', kernel: 'Kernel', time: 'Estimated time', moved: 'Bytes moved' } as const;
export type Mode = keyof typeof MODES;

/** A colour: a number among the categories, or a strength from 0 to 1; undefined without a value. */
export type Colour = { category: number } | { strength: number } | undefined;

export interface Entry {
  colour: Colour;
  text: string;
}

export interface Scale {
  of(box: Box): Colour;
  legend: Entry[];
  /** The legend's text if nothing has a colour. */
  nothing: string;
}

/** In the order of the server's table, so that a family has the same colour in every model. */
const FAMILIES = ['conv', 'matmul', 'norm', 'activation', 'pool', 'attention', 'recurrent', 'embedding', 'elementwise', 'reduction', 'shape', 'creation', 'index', 'loss', 'fft', 'other'];
/** The smallest error that is shown; smaller ones look the same. */
const GOOD_DB = 60;
const LEVELS = [0.1, 0.4, 0.7, 1];

export function scaleOf(mode: Mode, graph: Graph): Scale {
  return { family: families, cost: costs, format: formats, error: errors, kernel: kernels, time: times, moved }[mode](graph);
}

function families({ columns }: Graph): Scale {
  const there = new Set(columns.family);
  const legend = FAMILIES.map((text, category) => ({ colour: { category }, text })).filter(({ text }) => there.has(text));
  const of = (box: Box): Colour => (box.kind === 'scope' ? undefined : { category: FAMILIES.indexOf(columns.family[box.first] ?? 'other') });
  return { of, legend, nothing: '' };
}

/** The share of the most expensive operation, by order of magnitude: the scale covers four of them. */
function amounts(column: (number | null)[], text: (amount: number) => string, nothing: string): Scale {
  const most = column.reduce<number>((most, amount) => Math.max(most, amount ?? 0), 0);
  const strength = (amount: number): number => Math.max(0, 1 + Math.log10(amount / most) / 4);
  const of = (box: Box): Colour => {
    const amount = sum(column.slice(box.first, box.end));
    return amount > 0 ? { strength: Math.min(1, strength(amount)) } : undefined;
  };
  const legend = LEVELS.map((level) => ({ colour: { strength: level }, text: text(most * 10 ** (4 * (level - 1))) }));
  return { of, legend: most > 0 ? legend : [], nothing };
}

const NO_DEVICE = 'No device is picked: MASE: Show Costs on a Device.';
const costs = ({ columns }: Graph): Scale => amounts(columns.flops, scaled, 'Nothing here has a cost.');
const times = ({ columns }: Graph): Scale => amounts(columns.seconds, inTime, NO_DEVICE);
const moved = ({ columns }: Graph): Scale => amounts(columns.moved, inGB, NO_DEVICE);

function formats({ columns, values }: Graph): Scale {
  const of = (index: number) => columns.format[index] ?? typeOf(values[columns.value[index] ?? -1]);
  const found = [...new Set(columns.row.map((_, index) => of(index)))].filter((text) => text !== undefined).sort();
  const legend = found.map((text, category) => ({ colour: { category }, text }));
  const colour = (box: Box): Colour => {
    const own = new Set(columns.row.slice(box.first, box.end).map((_, offset) => of(box.first + offset)));
    const [only] = own;
    return own.size === 1 && only !== undefined ? { category: found.indexOf(only) } : undefined;
  };
  return { of: colour, legend, nothing: 'No tensors are known.' };
}

/** The worst value inside a box. */
function errors({ columns, passes }: Graph): Scale {
  const decibels = (index: number) => {
    const told = columns.sqnr[index];
    return typeof told === 'number' ? told : told === 'inf' ? Infinity : undefined;
  };
  const strength = (sqnr: number) => Math.min(1, Math.max(0, 1 - sqnr / GOOD_DB));
  const of = (box: Box): Colour => {
    const known = columns.row.slice(box.first, box.end).map((_, offset) => decibels(box.first + offset)).filter((each) => each !== undefined);
    return known.length > 0 ? { strength: strength(Math.min(...known)) } : undefined;
  };
  const legend = [GOOD_DB, 40, 20, 0].map((sqnr) => ({ colour: { strength: strength(sqnr) }, text: sqnrText(sqnr) }));
  const nothing = passes.length > 0 ? 'No error has been measured yet.' : 'No error has been measured: apply a pass that quantises.';
  return { of, legend: columns.sqnr.some((sqnr) => sqnr !== null) ? legend : [], nothing };
}

/** What was fused into one kernel has one colour. */
function kernels({ columns }: Graph): Scale {
  const found = [...new Set(columns.kernel)].filter((text) => text !== null).sort();
  const legend = found.map((text, category) => ({ colour: { category }, text }));
  const of = (box: Box): Colour => {
    const own = new Set(columns.kernel.slice(box.first, box.end));
    const [only] = own;
    return own.size === 1 && typeof only === 'string' ? { category: found.indexOf(only) } : undefined;
  };
  return { of, legend, nothing: "No kernels are known: show Inductor's code of the model first." };
}

function typeOf(value: Value | undefined): string | undefined {
  return Array.isArray(value) ? value[0] : undefined;
}

function sum(numbers: (number | null)[]): number {
  return numbers.reduce<number>((total, number) => total + (number ?? 0), 0);
}
