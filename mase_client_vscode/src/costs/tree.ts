/** The rows as a tree: in which order, which of them are shown, and which stands for one that is hidden. */
import { COLUMNS, Column, NAME } from './columns';
import { CostRow, CostTable } from './rows';

/** By which column; null: as the model runs. */
export interface Sort {
  column: string;
  descending: boolean;
}

/** What a person chose of the view. `open`: ids of the rows whose parts are shown. */
export interface View {
  sort: Sort | null;
  filter: string;
  /** Layers and operators as one list, without the modules that hold them. */
  flat: boolean;
  /** Are operators shown that are no layers? */
  operators: boolean;
  open: ReadonlySet<string>;
}

/** A row as it is shown. `level` from 1; `position` from 1, of `size` rows beside each other. */
export interface Shown {
  row: CostRow;
  level: number;
  position: number;
  size: number;
  /** Undefined where it has no parts to show. */
  open: boolean | undefined;
}

/** Rows that are shown at first, at most: whole levels are opened as long as they fit. */
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

  /** The ids to be open at first: level by level, while what is shown stays short. */
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

  /** The rows as a person sees them. Where something is looked for, what holds a find is open. */
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

  /** The path from the whole model down to a row, both included. */
  lineage(id: string): CostRow[] {
    const found: CostRow[] = [];
    for (let row = this.row(id); row !== undefined; row = this.rows[row.parent]) found.unshift(row);
    return found;
  }

  /** Which of the shown rows stands for a row: itself, or what holds it and is closed. */
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

  /** Every word has to stand in the row's path, type or formats. */
  private fitting({ filter }: View): (row: CostRow) => boolean {
    const words = filter.toLowerCase().split(/\s+/).filter((word) => word !== '');
    return (row) => {
      const text = [row.id, row.name, row.type, ...row.formats].join('\n').toLowerCase();
      return words.every((word) => text.includes(word));
    };
  }

  /** The ids of the rows that fit, and of all that hold one of them. */
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

/** What is not known comes last, whichever way. Equal ones keep their order. */
function compare(column: Column, one: CostRow, other: CostRow, descending: boolean): number {
  const [left, right] = [column.value(one), column.value(other)];
  if (left === null || right === null) return Number(left === null) - Number(right === null);
  const order = typeof left === 'number' && typeof right === 'number' ? Math.sign(left - right) : `${left}`.localeCompare(`${right}`, 'en', { numeric: true });
  return descending ? -order : order;
}

/** What the next press on a column's title asks for: the largest first, the smallest first, as the model runs. */
export function nextSort(sort: Sort | null, column: string): Sort | null {
  const first = column !== NAME;
  if (sort?.column !== column) return { column, descending: first };
  return sort.descending === first ? { column, descending: !first } : null;
}
