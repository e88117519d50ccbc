/** The layout, in a worker, so that nothing waits for it; of several requests only the last counts. */
import ELK, { ElkNode } from 'elkjs/lib/elk-api';

export class Layouter {
  private readonly elk: InstanceType<typeof ELK>;
  private running: Promise<unknown> = Promise.resolve();
  private asked = 0;

  /** `source`: the worker's own text. */
  constructor(source: string) {
    const url = URL.createObjectURL(new Blob([source], { type: 'text/javascript' }));
    this.elk = new ELK({ workerFactory: () => new Worker(url) });
  }

  /** The layout, undefined if another one was requested meanwhile. */
  async layout(input: ElkNode): Promise<ElkNode | undefined> {
    const number = ++this.asked;
    await this.running.catch(() => undefined);
    if (number !== this.asked) return undefined;
    const running = this.elk.layout(input);
    this.running = running;
    const answer = await running;
    return number === this.asked ? answer : undefined;
  }
}
