/** What the server tells of a cost table; see `mase/costTable` in docs/reference/requests.md. */
import { ModelTrace } from '../modelTrace';

export type RowKind = 'scope' | 'layer' | 'operator' | 'parameter';

export interface Hardware {
  multipliers: number;
  luts: number;
  memory_bits: number;
  cycles: number;
}

/** A place in the text that was traced: lines from 1, columns from 0. */
export interface Place {
  file: string;
  line: number;
  column: number;
  end_line: number;
  end_column: number;
}

/** A part of a model with all below it. `parent`: the number of the row that holds it, -1 for the whole model. */
export interface CostRow {
  id: string;
  parent: number;
  name: string;
  kind: RowKind;
  type: string;
  nodes: number;
  parameters: number | null;
  parameter_bytes: number | null;
  shared: string[];
  flops: number;
  traffic: number;
  results: number;
  formats: string[];
  bits: number | null;
  sqnr: number | 'inf' | null;
  max_error: number | null;
  hardware: Hardware | null;
  places: Place[];
}

export interface CostTable extends ModelTrace {
  steps: string[];
  rows: CostRow[];
}
