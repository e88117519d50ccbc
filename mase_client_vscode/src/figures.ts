/** Numbers in the form that people read, the same as in the server's hovers. */

const SI = ['', 'k', 'M', 'G', 'T', 'P', 'E'];
const BINARY = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** A count with an SI prefix, three digits and a unit: `75.5 M`, `12`, `75.5 MFLOPs`, `12 FLOPs`. */
export function scaled(number: number, of = ''): string {
  return inSteps(number, 1000, SI.map((prefix) => `${prefix}${of}`));
}

/** A size in bytes with a binary prefix: `96.0 KiB`, `12 B`. */
export function inBytes(number: number): string {
  return inSteps(number, 1024, BINARY);
}

/** A size in bytes as the makers of devices count, with GB = 10^9: `24.0 GB`. */
export function inGB(number: number): string {
  return scaled(number, 'B');
}

/** A time with three digits: `3.1 ms`, `450 µs`. */
export function inTime(seconds: number): string {
  const [unit, factor] = seconds >= 1 ? ['s', 1] as const : seconds >= 1e-3 ? ['ms', 1e3] as const : ['µs', 1e6] as const;
  return `${significant(seconds * factor)} ${unit}`;
}

/** All its digits: `1,234,567`. */
export function exact(number: number): string {
  return number.toLocaleString('en-US', { maximumFractionDigits: 20 });
}

/** A part of a whole in percent: `4.2 %`, `< 0.1 %`. */
export function share(part: number, whole: number): string {
  const percent = whole > 0 ? (100 * part) / whole : 0;
  return percent > 0 && percent < 0.1 ? '< 0.1 %' : `${significant(percent)} %`;
}

/** Three digits without trailing zeros: `8`, `4.25`, `0.0123`. */
export function significant(number: number): string {
  return `${Number(number.toPrecision(3))}`;
}

function inSteps(number: number, step: number, units: string[]): string {
  let scale = 0;
  let left = number;
  while (left >= step && scale + 1 < units.length) {
    left /= step;
    scale++;
  }
  const digits = Math.max(0, 3 - `${Math.trunc(left)}`.length);
  const text = scale > 0 ? left.toFixed(digits) : Number.isInteger(left) ? `${left}` : significant(left);
  return `${text} ${units[scale]}`.trim();
}
