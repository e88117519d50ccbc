/** The thickness of an edge shows the bytes of its tensor, by orders of magnitude. */
import { inBytes } from '../figures';
import { Graph } from './messages';

/** In pixels: neighbouring edges are eight apart. */
const [THIN, THICK] = [1, 6];

export interface Thickness {
  /** In pixels, of the edges from the operation with this index. */
  of(tensor: number): number;
  legend: { width: number; text: string }[];
}

export function thicknessOf({ columns }: Graph): Thickness {
  const some = columns.bytes.filter((bytes) => bytes > 0);
  const [least, most] = some.reduce(([low, high], bytes) => [Math.min(low, bytes), Math.max(high, bytes)], [Infinity, 0]);
  const width = (bytes: number) => {
    const share = most > least ? Math.log(bytes / least) / Math.log(most / least) : 0.5;
    return Number((THIN + (THICK - THIN) * share).toFixed(2));
  };
  const examples = some.length === 0 ? [] : [...new Set([least, Math.sqrt(least * most), most])];
  return {
    of: (tensor) => ((columns.bytes[tensor] ?? 0) > 0 ? width(columns.bytes[tensor] ?? 0) : THIN),
    legend: examples.map((bytes) => ({ width: width(bytes), text: inBytes(Math.round(bytes)) })),
  };
}
