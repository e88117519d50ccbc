/** The messages between the extension and the graph's page. */
import { Graph as Page, GraphColumns, WeightStatistics } from 'mase-client/records';

/** The columns of `mase/graph` that the page shows, one entry for each operation, in order of execution. */
export type Columns = Required<Omit<GraphColumns, 'mase_type' | 'details'>>;

/** What a person chose for all graphs. */
export interface Choices {
  minimap: boolean;
  /** Are edges thicker the more bytes they carry? */
  thick: boolean;
}

export const USUAL: Choices = { minimap: true, thick: false };

/** A model's graph. `scope`, `value` and `file` are indices into the lists; `inputs` are rows. */
export interface Graph extends Pick<Page, 'path' | 'model' | 'sha256' | 'stale' | 'complete' | 'values' | 'scopes' | 'files'> {
  columns: Columns;
  /** The passes on the model, as texts; empty without passes. */
  passes: string[];
}

export type ToPage =
  | { type: 'graph'; graph: Graph }
  /** The text of the layout's worker: a page may not load anything itself. */
  | { type: 'layout'; source: string }
  /** The rows under the cursor; the page scrolls to them if the cursor moved. */
  | { type: 'cursor'; rows: number[]; moved: boolean }
  /** Show a module of the model: open, centred, with the focus. */
  | { type: 'show'; scope: string }
  | { type: 'choices'; choices: Choices }
  /** The weights that the page requested; or why there are none. */
  | { type: 'weights'; of: string; statistics: WeightStatistics }
  | { type: 'weights'; of: string; problem: string }
  | { type: 'notice'; text: string };

export type FromPage =
  /** Show an operation's line; with `focus` the cursor goes there, else the editor only scrolls. */
  | { type: 'go'; row: number; focus: boolean }
  | { type: 'export'; format: 'svg' | 'png'; data: string }
  | { type: 'costs' }
  | { type: 'choose'; choices: Choices }
  /** Request the weights of a module or of a parameter. */
  | { type: 'weights'; of: string }
  /** A graph was drawn: its number of boxes, and milliseconds since it arrived or since the user's action. */
  | { type: 'painted'; boxes: number; milliseconds: number };
