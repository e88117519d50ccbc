/** The layout, in a worker, so that nothing waits for it; of several requests only the last counts, and it can be stopped. */
import ELK, { ElkNode } from 'elkjs/lib/elk-api';

/** A layout that has taken this long is stopped for the next one; a shorter one ends before a new worker could begin. */
const LONG_MS = 1000;

export class Layouter {
  private readonly url: string;
  private elk: InstanceType<typeof ELK>;
  private running: Promise<unknown> = Promise.resolve();
  private started = Infinity;
  private release = (): void => undefined;
  private asked = 0;

  /** `source`: the worker's own text. */
  constructor(source: string) {
    this.url = URL.createObjectURL(new Blob([source], { type: 'text/javascript' }));
    this.elk = this.made();
  }

  /** The layout, undefined if it was stopped, or if another one was requested meanwhile. */
  async layout(input: ElkNode): Promise<ElkNode | undefined> {
    const number = ++this.asked;
    if (performance.now() - this.started > LONG_MS) this.restart();
    await this.running.catch(() => undefined);
    if (number !== this.asked) return undefined;
    this.started = performance.now();
    const stopped = new Promise<undefined>((resolve) => (this.release = () => resolve(undefined)));
    const running = Promise.race([this.elk.layout(input), stopped]).finally(() => (this.started = Infinity));
    this.running = running;
    const answer = await running;
    return number === this.asked ? answer : undefined;
  }

  /** End the running layout. */
  stop(): void {
    this.asked++;
    this.restart();
  }

  private restart(): void {
    this.elk.terminateWorker();
    this.elk = this.made();
    this.release();
  }

  private made(): InstanceType<typeof ELK> {
    return new ELK({ workerFactory: () => new Worker(this.url) });
  }
}
