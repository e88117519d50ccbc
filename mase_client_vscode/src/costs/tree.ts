/** The rows as a tree: their order, which are shown, and which row stands for a hidden one. */
import { CostRow, CostTable } from 'mase-client/records';
import { COLUMNS, Column, NAME } from './columns';

/** The column to sort by; null: the order of execution. */
export interface Sort {
  column: string;
  descending: boolean;
}

/** The user's choices for the view. `open`: ids of the rows whose parts are shown. */
export interface View {
  sort: Sort | null;
  filter: string;
  /** Layers and operators as one list, without the modules around them. */
  flat: boolean;
  /** Are operators shown that are not layers? */
  operators: boolean;
  open: ReadonlySet<string>;
}

/** A shown row. `level` from 1; `position` from 1, of `size` siblings. */
export interface Shown {
  row: CostRow;
  level: number;
  position: number;
  size: number;
  /** Undefined if it has no parts to show. */
  open: boolean | undefined;
}

/** Maximum number of rows shown at first: whole levels are opened as long as they fit. */
const FIRST = 24;

export class Tree {
  private readonly below: CostRow[][];
  private readonly numbers = new Map<string, number>();

  constructor(readonly table: Pick<CostTable, 'rows'>) {
    this.below = table.rows.map(() => []);
    table.rows.forEach((row, number) => {
      this.numbers.set(row.id, number);
      this.below[row.parent]?.push(row);
    });
  }

  get rows(): readonly CostRow[] {
    return this.table.rows;
  }

  row(id: string): CostRow | undefined {
    const number = this.numbers.get(id);
    return number === undefined ? undefined : this.rows[number];
  }

  /** The ids open at first: level by level, as long as the list stays short. */
  firstOpen(): Set<string> {
    const open = new Set<string>();
    let level = this.rows.slice(0, 1);
    let shown = level.length;
    while (level.length > 0) {
      const next = level.flatMap((row) => this.partsOf(row));
      shown += next.length;
      if (open.size > 0 && shown > FIRST) break;
      level.filter((row) => this.partsOf(row).length > 0).forEach(({ id }) => open.add(id));
      level = next;
    }
    return open;
  }

  /** Every id that can be opened. */
  all(): Set<string> {
    return new Set(this.rows.filter((_, number) => this.below[number]?.length).map(({ id }) => id));
  }

  /** The visible rows. With a filter, rows that hold a match are open. */
  shown(view: View): Shown[] {
    const fits = this.fitting(view);
    if (view.flat) {
      const listed = this.sorted(this.rows.filter((row) => row.kind !== 'scope' && this.kept(row, view) && fits(row)), view.sort);
      return listed.map((row, index) => ({ row, level: 1, position: index + 1, size: listed.length, open: undefined }));
    }
    const holds = this.holding((row) => this.kept(row, view) && fits(row));
    const looking = view.filter.trim() !== '';
    const found: Shown[] = [];
    const add = (rows: CostRow[], level: number): void => {
      const beside = this.sorted(rows.filter((row) => this.kept(row, view) && holds.has(row.id)), view.sort);
      beside.forEach((row, index) => {
        const parts = this.partsOf(row).filter((part) => this.kept(part, view) && holds.has(part.id));
        const open = parts.length > 0 ? looking || view.open.has(row.id) : undefined;
        found.push({ row, level, position: index + 1, size: beside.length, open });
        if (open) add(parts, level + 1);
      });
    };
    add(this.rows.slice(0, 1), 1);
    return found;
  }

  /** The path from the whole model down to a row, inclusive. */
  lineage(id: string): CostRow[] {
    const found: CostRow[] = [];
    for (let row = this.row(id); row !== undefined; row = this.rows[row.parent]) found.unshift(row);
    return found;
  }

  /** The shown row that stands for a row: itself, or the closed row around it. */
  standIn(id: string, shown: ReadonlyMap<string, Shown>): string | undefined {
    if (shown.has(id)) return id;
    return this.lineage(id).find((row) => shown.get(row.id)?.open === false)?.id;
  }

  private partsOf(row: CostRow): CostRow[] {
    return this.below[this.numbers.get(row.id) ?? -1] ?? [];
  }

  private kept(row: CostRow, view: View): boolean {
    return view.operators || row.kind !== 'operator';
  }

  /** Every word must occur in the row's path, type or formats. */
  private fitting({ filter }: View): (row: CostRow) => boolean {
    const words = filter.toLowerCase().split(/\s+/).filter((word) => word !== '');
    return (row) => {
      const text = [row.id, row.name, row.type, ...row.formats].join('\n').toLowerCase();
      return words.every((word) => text.includes(word));
    };
  }

  /** The ids of the matching rows, and of all rows around them. */
  private holding(fits: (row: CostRow) => boolean): Set<string> {
    const found = new Set<string>();
    for (let number = this.rows.length - 1; number >= 0; number--) {
      const row = this.rows[number];
      if (row === undefined || !(found.has(row.id) || fits(row))) continue;
      found.add(row.id);
      const above = this.rows[row.parent];
      if (above !== undefined) found.add(above.id);
    }
    return found;
  }

  private sorted(rows: CostRow[], sort: Sort | null): CostRow[] {
    const column = COLUMNS.find(({ id }) => id === sort?.column);
    if (column === undefined || sort === null) return rows;
    return rows.toSorted((one, other) => compare(column, one, other, sort.descending));
  }
}

/** Unknown values come last in either direction. Equal ones keep their order. */
function compare(column: Column, one: CostRow, other: CostRow, descending: boolean): number {
  const [left, right] = [column.value(one), column.value(other)];
  if (left === null || right === null) return Number(left === null) - Number(right === null);
  const order = typeof left === 'number' && typeof right === 'number' ? Math.sign(left - right) : `${left}`.localeCompare(`${right}`, 'en', { numeric: true });
  return descending ? -order : order;
}

/** The sort order after the next click on a column's title: largest first, smallest first, order of execution. */
export function nextSort(sort: Sort | null, column: string): Sort | null {
  const first = column !== NAME;
  if (sort?.column !== column) return { column, descending: first };
  return sort.descending === first ? { column, descending: !first } : null;
}
