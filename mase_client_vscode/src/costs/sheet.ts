/** The rows that are shown, as text for other programs. Numbers have all their digits there. */
import { Column, NAME } from './columns';
import { CostRow } from './rows';
import { Shown } from './tree';

/** Columns that are parted by tabs, as spreadsheets take them from the clipboard. */
export function asTsv(shown: Shown[], columns: Column[]): string {
  return lines(shown, columns).map((cells) => cells.map((cell) => cell.replace(/[\t\r\n]+/g, ' ')).join('\t')).join('\n');
}

/** As RFC 4180 has it. */
export function asCsv(shown: Shown[], columns: Column[]): string {
  return lines(shown, columns).map((cells) => `${cells.map(quoted).join(',')}\r\n`).join('');
}

function lines(shown: Shown[], columns: Column[]): string[][] {
  const titles = columns.map(({ id, title }) => (id === NAME ? ['Path', 'Type'] : [title])).flat();
  return [titles, ...shown.map(({ row }) => columns.flatMap((column) => cells(column, row)))];
}

function cells(column: Column, row: CostRow): string[] {
  if (column.id === NAME) return [row.id || row.name, row.type || row.kind];
  const value = column.value(row);
  return [value === Infinity ? 'inf' : `${value ?? ''}`];
}

function quoted(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
