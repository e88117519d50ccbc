/** A graph worked out by hand: an input, two equal blocks with a layer and an addition each, and a head. */
import { Columns, Graph } from '../src/graph/messages';
import { Value } from 'mase-client/records';

type Row = { name: string; op?: string; target?: string; mase_op?: string; family?: string; scope?: string; value?: Value; flops?: number | null; inputs?: number[]; format?: string; sqnr?: number | string; saturated?: number; parameters?: number; bytes?: number; seconds?: number; bound?: string };

export const TENSOR: Value = ['f32', [2, 8], ['B', '8']];
const ROWS: Row[] = [
  { name: 'x', op: 'placeholder', mase_op: 'placeholder', family: 'other' },
  { name: 'blocks_0_fc', op: 'call_module', target: 'blocks.0.fc', mase_op: 'linear', family: 'matmul', scope: 'blocks.0', flops: 1000, inputs: [10] },
  { name: 'add', mase_op: 'add', family: 'elementwise', scope: 'blocks.0', flops: 10, inputs: [11, 10] },
  { name: 'blocks_1_fc', op: 'call_module', target: 'blocks.1.fc', mase_op: 'linear', family: 'matmul', scope: 'blocks.1', flops: 1000, inputs: [12] },
  { name: 'add_1', mase_op: 'add', family: 'elementwise', scope: 'blocks.1', flops: 10, inputs: [13, 12] },
  { name: 'head', op: 'call_module', target: 'head', mase_op: 'linear', family: 'matmul', value: ['f32', [2, 4], ['B', '4']], flops: 100, inputs: [14] },
];

/** Its rows begin at 10, as those of a file's second model do. */
export function sample(rows: Row[] = ROWS): Graph {
  const paths = [...new Set(rows.map(({ scope }) => scope ?? ''))];
  const values = rows.map(({ value }) => (value === undefined ? TENSOR : value));
  const column = <T>(pick: (row: Row, index: number) => T): T[] => rows.map(pick);
  const nothing = column(() => null);
  const columns: Columns = {
    row: column((_, index) => index + 10),
    name: column(({ name }) => name),
    op: column(({ op }) => op ?? 'call_function'),
    target: column(({ target, name }) => target ?? name),
    mase_op: column(({ mase_op }) => mase_op ?? ''),
    family: column(({ family }) => family ?? 'other'),
    scope: column(({ scope }) => paths.indexOf(scope ?? '')),
    value: column((_, index) => index),
    flops: column(({ flops }) => (flops === undefined ? 0 : flops)),
    inputs: column(({ inputs }) => inputs ?? []),
    format: column(({ format }) => format ?? null),
    sqnr: column(({ sqnr }) => sqnr ?? null),
    max_error: nothing,
    saturated: column(({ saturated }) => saturated ?? null),
    parameters: column(({ parameters }) => parameters ?? 0),
    bytes: column(({ bytes }) => bytes ?? 0),
    note: nothing,
    kernel: nothing,
    seconds: column(({ seconds }) => seconds ?? null),
    moved: nothing,
    bound: column(({ bound }) => bound ?? null),
    ...Object.fromEntries(['file', 'line', 'column', 'end_line', 'end_column'].map((name) => [name, column((_, index) => (name === 'file' ? 0 : index + 1))])),
  } as Columns;
  const types = new Map([['blocks.0', 'Block'], ['blocks.1', 'Block'], ['', 'Net']]);
  const scopes = paths.map((path): [string, string] => [path, types.get(path) ?? 'Module']);
  return { path: '/net.py', model: 'Net', sha256: 'a', stale: false, complete: true, passes: [], columns, values, scopes, files: [{ path: '/net.py', library: false }] };
}

/** As many operations as are asked for, each behind the one before it, in no module. */
export function chain(count: number): Graph {
  const rows = Array.from({ length: count }, (_, index): Row => ({ name: `relu_${index}`, mase_op: 'relu', inputs: index > 0 ? [index + 9] : [] }));
  return sample(rows);
}
