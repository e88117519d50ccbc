/** A bar that says how long the layout has been computed, with a button that stops it. */
import { element } from '../../webview/page/elements';

/** A layout that takes less needs no bar. */
const WAIT_MS = 400;

export class Progress {
  private readonly text = element('span');
  /** Not for screen readers, which would read every second. */
  private readonly seconds = element('span', { class: 'seconds', 'aria-hidden': 'true' });
  private readonly stop = element('button', { type: 'button', title: 'Keep the graph as it is (Esc)' }, 'Stop');
  readonly root = element('div', { class: 'progress', role: 'status', hidden: true }, this.text, this.seconds, this.stop);
  private timers: ReturnType<typeof setTimeout>[] = [];

  constructor(stop: () => void) {
    this.stop.addEventListener('click', stop);
  }

  begin(boxes: number): void {
    this.end();
    const started = performance.now();
    const tick = () => (this.seconds.textContent = `${Math.floor((performance.now() - started) / 1000)} s`);
    const show = () => {
      this.text.textContent = `Laying out ${boxes.toLocaleString('en')} boxes…`;
      this.root.hidden = false;
      tick();
    };
    this.timers = [setTimeout(show, WAIT_MS), setInterval(tick, 1000)];
  }

  end(): void {
    this.timers.forEach(clearTimeout);
    this.root.hidden = true;
  }

  get isShown(): boolean {
    return !this.root.hidden;
  }
}
