/** Two sets of inputs side by side, as two texts; VS Code marks the lines that differ. */
import { InputComparison, InputRow } from 'mase-client/records';
import { alternatives, figures, nameOf, sizes } from './texts';

type Side = 'before' | 'after';

/** One side: the inputs, their costs, then a line for each place with tensors. */
export function text(told: InputComparison, side: Side, set: string): string {
  const own = told[side];
  if (own === null) {
    const why = told.problems.map(({ message }) => `  ${message}`);
    return [`${told.model} with the inputs ${nameOf(set)} cannot be traced:`, ...why, ''].join('\n');
  }
  const inputs = Object.entries(own.inputs ?? {}).map(([name, value]): [string, string] => [`input ${name}`, sizes(value)]);
  const head: [string, string][] = [['model', told.model], ['inputs', nameOf(set)], ...inputs, ...figures(own)];
  const width = Math.max(...head.map(([name]) => name.length));
  const facts = head.map(([name, value]) => `${name.padEnd(width)}  ${value}`);
  return [...facts, '', ...tensors(told.rows, side), ''].join('\n');
}

function tensors(rows: InputRow[], side: Side): string[] {
  const number = `${Math.max(0, ...rows.map(({ line }) => line))}`.length;
  const labels = rows.map(label);
  const width = Math.max(0, ...labels.map((each) => each.length));
  const lines: string[] = [];
  rows.forEach((row, index) => {
    const above = rows[index - 1];
    if (above === undefined || above.function !== row.function) lines.push(...(above === undefined ? [] : ['']), `${row.function || 'file'}:`);
    const values = row[side];
    lines.push(`${`${row.line}`.padStart(number + 2)}  ${(labels[index] ?? '').padEnd(width)}  ${values === null ? 'not reached' : alternatives(values)}`);
  });
  return lines;
}

function label({ kind, name }: InputRow): string {
  return kind === 'return' ? 'return' : name;
}
