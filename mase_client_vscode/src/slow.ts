/** Why the trace of a file is slow: the server's lines while it runs, and once more when it ends. */
import { MaseStatus } from './records';

const ENDED: ReadonlySet<string> = new Set(['ready', 'failed', 'crashed', 'superseded', 'untrusted', 'no_model', 'no_environment']);

/** Seconds in a line, and the characters that they get while they count: the status item must not change its width. */
const SECONDS = /(?<!\S)\d+(\.\d)? s(?=:| \(|$)/g;
const WIDTH = 6;

/** The last line about each file, by its URI. */
export class SlowLines {
  private readonly lines = new Map<string, { text: string; over: boolean }>();

  told(uri: string, text: string): void {
    this.lines.set(uri, { text, over: false });
  }

  /** A trace begins, goes on or ends: a new one has no line yet, an ended one shows it in the tooltip only. */
  traced(uri: string, { state }: Pick<MaseStatus, 'state'>): void {
    const line = this.lines.get(uri);
    if (state === 'queued') this.lines.delete(uri);
    else if (line !== undefined && ENDED.has(state)) line.over = true;
  }

  /** The line for the status item, undefined while nothing is slow. */
  now(uri: string): string | undefined {
    const line = this.lines.get(uri);
    return line?.over === false ? line.text.replace(SECONDS, (seconds) => seconds.padStart(WIDTH, '\u00a0')) : undefined;
  }

  /** The reason why the last trace was slow, undefined if it was not. */
  last(uri: string): string | undefined {
    const line = this.lines.get(uri);
    return line?.over === true ? line.text : undefined;
  }

  clear(): void {
    this.lines.clear();
  }
}
