/** The columns of the table: each gives a number to sort by and a text for every row. */
import { exact, inBytes, inGB, inTime, scaled, share, significant } from '../figures';
import { CostHardware, CostRow } from 'mase-client/records';

/** A value to sort by; null if it is unknown or does not apply. */
export type Value = number | string | null;

export interface Column {
  id: string;
  title: string;
  /** Its meaning, in the tooltip of the title. */
  help: string;
  value: (row: CostRow) => Value;
  text: (value: number | string, row: CostRow) => string;
  /** More digits, in the tooltip of a cell. */
  more?: (value: number | string, row: CostRow) => string;
  /** Do the parts add up, so that a share of the whole makes sense? */
  adds: boolean;
  /** Width in characters. */
  width: number;
}

export const NAME = 'name';

const digits = (value: number | string): string => (typeof value === 'number' ? exact(value) : value);
const bytes = (value: number | string): string => (typeof value === 'number' ? inBytes(value) : value);
const gb = (value: number | string): string => (typeof value === 'number' ? inGB(value) : value);
const count = (value: number | string): string => (typeof value === 'number' ? scaled(value) : value);
const few = (value: number | string): string => (typeof value === 'number' ? significant(value) : value);

/** A number without meaning when it is 0, e.g. for rows that compute nothing or have no weights. */
const some = (value: number | null): Value => value || null;
const hardware = (key: keyof CostHardware) => (row: CostRow): Value => row.hardware?.[key] ?? null;

export const COLUMNS: readonly Column[] = [
  {
    id: NAME, title: 'Module', help: 'Modules, their operators, and parameters outside of layers',
    value: (row) => row.name, text: digits, adds: false, width: 28,
  },
  {
    id: 'parameters', title: 'Parameters', help: 'Number of parameters; a shared one counts once in every total',
    value: (row) => some(row.parameters), text: digits, adds: true, width: 15,
  },
  {
    id: 'flops', title: 'FLOPs', help: 'Operations of one forward pass; a multiply-accumulate counts as 2',
    value: (row) => some(row.flops), text: count, more: (value) => `${digits(value)} FLOPs`, adds: true, width: 11,
  },
  {
    id: 'seconds', title: 'Est. Time', help: 'Estimated time on the device',
    value: (row) => row.seconds, text: (value) => (typeof value === 'number' ? inTime(value) : value), adds: true, width: 12,
  },
  {
    id: 'moved', title: 'Moved', help: 'Bytes that are read and written on the device, in training also by the backward',
    value: (row) => some(row.moved), text: gb, more: (value) => `${digits(value)} bytes`, adds: true, width: 11,
  },
  { id: 'bound', title: 'Bound', help: 'What takes most of the time: computing, memory, or launching operators', value: (row) => row.bound, text: digits, adds: false, width: 10 },
  {
    id: 'held', title: 'At Peak', help: 'Bytes of its activations that are held when most memory is',
    value: (row) => some(row.held), text: gb, more: (value) => `${digits(value)} bytes`, adds: true, width: 11,
  },
  {
    id: 'weights', title: 'Weights', help: 'Bytes of parameters, as the model stores them',
    value: (row) => some(row.parameter_bytes), text: bytes, more: (value) => `${digits(value)} bytes`, adds: true, width: 11,
  },
  {
    id: 'results', title: 'Activations', help: 'Bytes of the results that are written; a view writes none',
    value: (row) => some(row.results), text: bytes, more: (value) => `${digits(value)} bytes`, adds: true, width: 14,
  },
  {
    id: 'traffic', title: 'Traffic', help: 'Bytes read and written: inputs, weights and results',
    value: (row) => some(row.traffic), text: bytes, more: (value) => `${digits(value)} bytes`, adds: true, width: 11,
  },
  {
    id: 'format', title: 'Format', help: 'Number formats of the results, after the passes',
    value: (row) => row.formats.join(', ') || null, adds: false, width: 16,
    text: (value, row) => (row.formats.length > 2 ? `${row.formats.length} formats` : `${value}`), more: digits,
  },
  { id: 'bits', title: 'Bits', help: 'Bits per element, if all results have one format', value: (row) => row.bits, text: few, adds: false, width: 7 },
  {
    id: 'sqnr', title: 'SQNR', help: 'Signal-to-quantisation-noise ratio of the last result, in dB; higher is better',
    value: (row) => (row.sqnr === 'inf' ? Infinity : row.sqnr), adds: false, width: 11,
    text: (value) => (value === Infinity ? 'exact' : typeof value === 'number' ? `${value.toFixed(1)} dB` : value),
  },
  {
    id: 'error', title: 'Max Error', help: 'The largest error of an element of the last result',
    value: (row) => row.max_error, text: few, adds: false, width: 13,
  },
  {
    id: 'saturated', title: 'Saturated', help: 'Share of values outside the range of their formats; for a module, the highest share in it',
    value: (row) => row.saturated, text: (value) => (typeof value === 'number' ? share(value, 1) : value), adds: false, width: 13,
  },
  {
    id: 'passes', title: 'Passes', help: 'What passes did to a layer: its adapter, its pruning, its weights, or why it was not quantised',
    value: (row) => row.passes || null, text: digits, more: digits, adds: false, width: 28,
  },
  {
    id: 'kernels', title: 'Kernels', help: "Kernels that Inductor makes of it, alone or with others; shown once Inductor's code was asked for",
    value: (row) => row.kernels, text: digits, adds: false, width: 9,
  },
  {
    id: 'multipliers', title: 'Multipliers', help: 'Multipliers of the hardware, estimated',
    value: hardware('multipliers'), text: digits, adds: true, width: 14,
  },
  { id: 'luts', title: 'LUTs', help: 'Four-input look-up tables of the hardware, estimated', value: hardware('luts'), text: digits, adds: true, width: 11 },
  {
    id: 'memory', title: 'Memory Bits', help: 'Bits of memory of the hardware: weights, buffers and tables',
    value: hardware('memory_bits'), text: digits, adds: true, width: 15,
  },
  {
    id: 'cycles', title: 'Cycles', help: 'Cycles from one sample to the next; for a module, those of its slowest part',
    value: hardware('cycles'), text: digits, adds: false, width: 11,
  },
];

/** The columns of a run, which stay while a newer one is computed. */
const OF_A_RUN = ['seconds', 'moved', 'bound', 'held'];

/** The columns with a value in some row; the name, the parameters and the operations always. `older`: is a run computed again? */
export function columnsOf(rows: readonly CostRow[], older = false): Column[] {
  const kept = (column: Column) => older && OF_A_RUN.includes(column.id);
  return COLUMNS.filter((column, index) => index < 3 || kept(column) || rows.some((row) => column.value(row) !== null));
}

/** The cell's text, "" if unknown. */
export function textOf(column: Column, row: CostRow): string {
  const value = column.value(row);
  return value === null ? '' : column.text(value, row);
}
