/** Joins the pages of a graph, each with its own tables, into one. */
import { Graph as Page, GraphFile, Value } from 'mase-client/records';
import { Columns, Graph } from './messages';

/** A request of `mase/graph`. */
export const COLUMNS: (keyof Columns)[] = [
  'name', 'op', 'target', 'mase_op', 'family', 'scope', 'value', 'flops', 'file', 'line', 'column', 'end_line', 'end_column', 'inputs', 'format', 'sqnr', 'max_error', 'note', 'saturated', 'parameters', 'bytes', 'kernel', 'seconds', 'moved', 'bound',
];

/** An answer of `mase/graph`. `next`: the start of the next page. */
export interface GraphPage extends Page {
  columns: Columns;
}

/** Are two pages of the same trace? */
export function sameTrace(one: GraphPage, other: GraphPage): boolean {
  return one.sha256 === other.sha256 && one.generation === other.generation;
}

export function joined(pages: [GraphPage, ...GraphPage[]], passes: string[]): Graph {
  const [{ path, model, sha256, stale, complete }] = pages;
  const tables = { value: new Table<Value>(), scope: new Table<[string, string]>(), file: new Table<GraphFile>() };
  const columns = Object.fromEntries(['row', ...COLUMNS].map((name) => [name, [] as unknown[]]));
  for (const page of pages) {
    const told: Record<string, unknown[]> = {
      ...page.columns,
      value: tables.value.renumbered(page.columns.value, page.values),
      scope: tables.scope.renumbered(page.columns.scope, page.scopes),
      file: tables.file.renumbered(page.columns.file, page.files),
    };
    for (const [name, column] of Object.entries(columns)) for (const each of told[name] ?? []) column.push(each);
  }
  const { value, scope, file } = tables;
  const named = { values: value.entries, scopes: scope.entries, files: file.entries };
  return { path, model, sha256, stale, complete, passes, columns: columns as unknown as Columns, ...named };
}

class Table<T> {
  readonly entries: T[] = [];
  private readonly known = new Map<string, number>();

  /** Translate a page's indices into its own tables to indices into the joined tables. */
  renumbered(column: number[], entries: T[]): number[] {
    const numbers = entries.map((entry) => this.number(entry));
    return column.map((index) => numbers[index] ?? -1);
  }

  private number(entry: T): number {
    const key = JSON.stringify(entry);
    const known = this.known.get(key);
    if (known !== undefined) return known;
    this.known.set(key, this.entries.length);
    return this.entries.push(entry) - 1;
  }
}
