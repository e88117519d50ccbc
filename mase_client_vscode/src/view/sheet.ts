/** What `mase-server view` tells its page, as in `Sheet` of mase_server/cli/viewing.py, and what lies on a line of it. */
import { significant, scaled } from '../figures';
import { Graph } from '../graph/messages';
import { GraphPage, joined } from '../graph/pages';
import { resultText } from '../graph/texts';
import { CostTable, Pipeline } from 'mase-client/records';

/** `number`: of the source line, 0 for a line of ours; `parts`: texts with their styles; `tips`: of its hints, in order. */
export interface LineRow {
  number: number;
  parts: [text: string, style: string][];
  tips: string[];
}

export interface ProblemRow {
  line: number;
  column: number;
  severity: string;
  code: string;
  message: string;
}

export interface ModelSheet {
  title: string;
  line: number;
  facts: string;
  graph: [GraphPage, ...GraphPage[]];
  costs: CostTable;
  passes: Pipeline;
}

export interface Sheet {
  version: string;
  file: string;
  path: string;
  state: string;
  message: string;
  /** Are the shapes those of an older text, because the present one could not be traced? */
  stale: boolean;
  lines: LineRow[];
  problems: ProblemRow[];
  unshown: string[];
  models: ModelSheet[];
  edited: boolean;
  gone: boolean;
}

/** The graph that the page of graphs takes. */
export function graphOf({ graph, passes }: ModelSheet): Graph {
  return joined(graph, passes.steps ?? []);
}

/** The rows of a graph whose code begins on a line of a file, or, if none does, goes over it. */
export function rowsOnLine({ columns, files }: Graph, path: string, line: number): number[] {
  const there = (at: number) => files[columns.file[at] ?? -1]?.path === path;
  const first = (at: number) => columns.line[at] ?? 0;
  const places = columns.row.map((_, at) => at).filter(there);
  const begins = places.filter((at) => first(at) === line);
  const over = places.filter((at) => first(at) < line && line <= (columns.end_line[at] ?? 0));
  return (begins.length > 0 ? begins : over).map((at) => columns.row[at] ?? -1);
}

/** The line of an operation in a file; undefined if it has none there. */
export function lineOfRow({ columns, files }: Graph, path: string, row: number): number | undefined {
  const at = columns.row.indexOf(row);
  return files[columns.file[at] ?? -1]?.path === path ? columns.line[at] : undefined;
}

/** The rows of a cost table that have a place on a line of a file. */
export function costsOnLine({ rows }: CostTable, path: string, line: number): string[] {
  return rows.filter(({ places }) => places.some((place) => place.file === path && place.line === line)).map(({ id }) => id);
}

/** One text for each operation of a line, with the modules that do the same: `linear → f32[B, 64] · 65.5 kFLOPs · layers.0`. */
export function operationsOnLine(graph: Graph, path: string, line: number): string[] {
  const { columns, scopes } = graph;
  const modules = new Map<string, string[]>();
  for (const row of rowsOnLine(graph, path, line)) {
    const at = columns.row.indexOf(row);
    const flops = columns.flops[at] ?? 0;
    const noise = columns.sqnr[at];
    const parts = [
      `${columns.mase_op[at]} → ${resultText(graph, at)}`,
      flops > 0 ? scaled(flops, 'FLOPs') : '',
      typeof noise === 'number' ? `${significant(noise)} dB` : '',
    ];
    const text = parts.filter((part) => part !== '').join(' · ');
    const module = (columns.op[at] === 'call_module' ? columns.target[at] : scopes[columns.scope[at] ?? -1]?.[0]) ?? '';
    modules.set(text, [...(modules.get(text) ?? []), module]);
  }
  return [...modules].map(([text, paths]) => {
    const [first, last] = [paths[0] ?? '', paths.at(-1) ?? ''];
    const where = paths.length > 2 ? `${first} … ${last}` : [...new Set(paths)].join(', ');
    return [paths.length > 1 ? `${paths.length} × ${text}` : text, where].filter((part) => part !== '').join(' · ');
  });
}
