/** What the extension and the graph's page tell each other. */
import { ModelTrace } from '../modelTrace';

/** A value as the server tells it: a tensor is [type, shape, symbols]; see `mase_server/snapshot.py`. */
export type Value =
  | null
  | [dtype: string, shape: number[], symbols: string[] | null]
  | { tuple: Value[] }
  | { dict: Record<string, Value> }
  | { python: string };

/** The columns of `mase/graph` that the page shows, one entry for each operation, in order of execution. */
export interface Columns {
  row: number[];
  name: string[];
  op: string[];
  target: string[];
  mase_op: string[];
  family: string[];
  scope: number[];
  value: number[];
  flops: (number | null)[];
  file: number[];
  line: number[];
  column: number[];
  end_line: number[];
  end_column: number[];
  inputs: number[][];
  format: (string | null)[];
  sqnr: (number | string | null)[];
  max_error: (number | null)[];
  note: (string | null)[];
}

/** A model's graph. `scope`, `value` and `file` are indices into the lists; `inputs` are rows. */
export interface Graph extends Omit<ModelTrace, 'generation'> {
  columns: Columns;
  values: Value[];
  scopes: [path: string, type: string][];
  files: { path: string; library: boolean }[];
  /** What lies over it, as texts; empty without passes. */
  passes: string[];
}

export type ToPage =
  | { type: 'graph'; graph: Graph }
  /** The text of the layout's worker: a page may load nothing itself. */
  | { type: 'layout'; source: string }
  /** The rows that the cursor is on; they are brought into sight if it moved. */
  | { type: 'cursor'; rows: number[]; moved: boolean }
  /** Show a module of the model: opened, in the middle, with the focus. */
  | { type: 'show'; scope: string }
  | { type: 'notice'; text: string };

export type FromPage =
  /** Show an operation's line; with `focus` the person goes there, else it is only scrolled to. */
  | { type: 'go'; row: number; focus: boolean }
  | { type: 'export'; format: 'svg' | 'png'; data: string }
  | { type: 'costs' }
  /** A graph was drawn: how many boxes, and how many milliseconds after it arrived, or after what the person did. */
  | { type: 'painted'; boxes: number; milliseconds: number };
