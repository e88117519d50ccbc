/** A model as one trace saw it: what every answer about a whole model begins with. */
export interface ModelTrace {
  path: string;
  model: string;
  sha256: string;
  generation: number;
  /** Is it of an older text, because the present one cannot be traced? */
  stale: boolean;
  /** Is the trace at its end? Before, numbers may still become names, and errors are not told yet. */
  complete: boolean;
}
