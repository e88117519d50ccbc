/** Why the trace of a file takes long: what the server says of it while it does, and once more when it is over. */
import { MaseStatus } from './protocol';

const ENDED: ReadonlySet<string> = new Set(['ready', 'failed', 'crashed', 'superseded', 'untrusted', 'no_model', 'no_environment']);

/** The last line about each file, by its URI. */
export class SlowLines {
  private readonly lines = new Map<string, { text: string; over: boolean }>();

  told(uri: string, text: string): void {
    this.lines.set(uri, { text, over: false });
  }

  /** A trace begins, goes on or ends: a new one has nothing to say yet, an ended one says it in the tooltip alone. */
  traced(uri: string, { state }: Pick<MaseStatus, 'state'>): void {
    const line = this.lines.get(uri);
    if (state === 'queued') this.lines.delete(uri);
    else if (line !== undefined && ENDED.has(state)) line.over = true;
  }

  /** The line for the status item, undefined while nothing is slow. */
  now(uri: string): string | undefined {
    const line = this.lines.get(uri);
    return line?.over === false ? line.text : undefined;
  }

  /** What was slow about the last trace, undefined where nothing was. */
  last(uri: string): string | undefined {
    const line = this.lines.get(uri);
    return line?.over === true ? line.text : undefined;
  }

  clear(): void {
    this.lines.clear();
  }
}
