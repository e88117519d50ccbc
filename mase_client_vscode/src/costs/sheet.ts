/** The shown rows as text for other programs, with all digits of the numbers. */
import { CostRow } from 'mase-client/records';
import { Column, NAME } from './columns';
import { Shown } from './tree';

/** Tab-separated columns, for pasting into spreadsheets. */
export function asTsv(shown: Shown[], columns: Column[]): string {
  return lines(shown, columns).map((cells) => cells.map((cell) => cell.replace(/[\t\r\n]+/g, ' ')).join('\t')).join('\n');
}

/** Comma-separated columns, as in RFC 4180. */
export function asCsv(shown: Shown[], columns: Column[]): string {
  return lines(shown, columns).map((cells) => `${cells.map(quoted).join(',')}\r\n`).join('');
}

function lines(shown: Shown[], columns: Column[]): string[][] {
  const titles = columns.map(({ id, title }) => (id === NAME ? ['Path', 'Type'] : [title])).flat();
  return [titles, ...shown.map(({ row }) => columns.flatMap((column) => cells(column, row)))];
}

function cells(column: Column, row: CostRow): string[] {
  if (column.id === NAME) return [plain(row.id || row.name), plain(row.type || row.kind)];
  const value = column.value(row);
  return [value === Infinity ? 'inf' : typeof value === 'string' ? plain(value) : `${value ?? ''}`];
}

/** A text that a spreadsheet does not take for a formula. */
function plain(text: string): string {
  return /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
}

function quoted(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
