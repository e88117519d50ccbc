/** Why the trace of a file is slow: the server's lines while it runs, and once more when it ends. */
import { MaseStatus } from 'mase-client/records';

const ENDED: ReadonlySet<string> = new Set(['ready', 'failed', 'crashed', 'superseded', 'untrusted', 'no_model', 'no_environment']);

/** The line at the end of a trace says what took longest of the whole; it is for the tooltip alone. */
const WHOLE = ', of which ';

/** The characters of a line while it counts the seconds: the status item must not change its width. */
export const WIDTH = 56;
/** The seconds of a line, the characters that they get, and a space that is as wide as a digit. */
const SECONDS = /(?<= )\d+(\.\d)?(?= s: )/;
const DIGITS = 5;
const SPACE = '\u2007';

/** The last line about each file, by its URI. */
export class SlowLines {
  private readonly lines = new Map<string, { text: string; over: boolean }>();

  told(uri: string, text: string): void {
    this.lines.set(uri, { text, over: text.includes(WHOLE) });
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
    if (line?.over !== false) return undefined;
    const text = line.text.replace(SECONDS, (seconds) => seconds.padStart(DIGITS, SPACE));
    return text.length > WIDTH ? `${text.slice(0, WIDTH - 1)}…` : text.padEnd(WIDTH, '\u00a0');
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
