/** The memory of a run over its operators, and what holds the peak; each point and each holder leads to its line. */
import { CostChange, CurvePoint, PeakHolder, RunSummary } from 'mase-client/records';
import { inGB, inTime, share, significant } from '../../figures';
import { element, svg } from '../../webview/page/elements';

export interface Ways {
  line(file: string, line: number, focus: boolean): void;
  device(): void;
  compare(): void;
}

/** The curve's own units; it is drawn as wide as the page. */
const [WIDE, HIGH] = [1000, 100];
/** The holders that are listed. */
const MOST = 12;
/** The changed lines that are listed. */
const LINES = 6;

export class Memory {
  private readonly title = element('summary');
  private readonly path = svg('path', { class: 'area' });
  private readonly mark = svg('line', { class: 'mark', y1: 0, y2: HIGH });
  private readonly change = element('div', { class: 'change' });
  private readonly curve = svg(
    'svg',
    { class: 'curve', viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: 'none', tabindex: 0, role: 'slider', 'aria-label': 'Memory over the run' },
    this.path,
    this.mark,
  );
  private readonly told = element('div', { class: 'told' });
  private readonly holders = element('div', { class: 'holders', role: 'list', 'aria-label': 'What holds the peak' });
  readonly element = element('details', { class: 'run', open: true, hidden: true }, this.title, this.change, this.curve, this.told, this.holders);
  private points: CurvePoint[] = [];
  private at = 0;

  constructor(private readonly ways: Ways) {
    this.curve.addEventListener('pointermove', (event) => this.point(this.nearest(event)));
    this.curve.addEventListener('pointerleave', () => this.point(this.highest));
    this.curve.addEventListener('click', (event) => this.go(this.points[this.nearest(event)], false));
    this.curve.addEventListener('keydown', (event) => this.pressed(event));
  }

  draw(run: RunSummary | null, older: boolean, change: CostChange | null = null): void {
    this.element.hidden = run === null;
    if (run === null) return;
    this.element.classList.toggle('older', older);
    const device = element('button', { title: 'Pick a device, and inference or training' }, run.device.name);
    device.addEventListener('click', () => this.ways.device());
    this.title.replaceChildren(`${run.optimizer ? `Training with ${run.optimizer}` : 'Inference'} on `, device, ` ${facts(run).join(' · ')}`);
    if (!older) this.tell(change, run);
    this.points = run.curve;
    const top = this.points[this.highest]?.bytes || 1;
    const x = (index: number) => (WIDE * index) / Math.max(1, this.points.length);
    const steps = this.points.map(({ bytes }, index) => `V${HIGH - (HIGH * bytes) / top}H${x(index + 1)}`);
    this.path.setAttribute('d', `M0,${HIGH}${steps.join('')}V${HIGH}Z`);
    this.curve.setAttribute('aria-valuemax', `${Math.max(0, this.points.length - 1)}`);
    this.point(this.highest);
    const holders = byLine(run.at_peak).slice(0, MOST);
    const largest = holders[0]?.bytes ?? 1;
    this.holders.replaceChildren(element('h2', {}, `What holds the peak of ${inGB(run.peak_bytes)}`), ...holders.map((held) => this.holder(held, largest, run.peak_bytes)));
  }

  /** What changed since the text before, with its lines. */
  private tell(change: CostChange | null, { device }: RunSummary): void {
    const compare = element('button', { title: `Compare two texts, two sets of inputs, or the model with its passes, on ${device.name}` }, 'Compare…');
    compare.addEventListener('click', () => this.ways.compare());
    const lines = change?.lines.slice(0, LINES).map(({ file, line, before_line: before }) => {
      const made = element('button', { disabled: line === 0, title: 'Show this line' }, line === 0 ? `${before} (gone)` : `${line}`);
      made.addEventListener('click', () => this.ways.line(file, line, false));
      return made;
    });
    this.change.replaceChildren(...(change === null ? [] : [`This change: ${changed(change)}`, ...(lines?.length ? [', at lines ', ...lines] : []), ' ']), compare);
  }

  private get highest(): number {
    return this.points.reduce((best, { bytes }, index) => (bytes > (this.points[best]?.bytes ?? 0) ? index : best), 0);
  }

  private nearest(event: MouseEvent): number {
    const { left, width } = this.curve.getBoundingClientRect();
    return Math.max(0, Math.min(this.points.length - 1, Math.floor(((event.clientX - left) / width) * this.points.length)));
  }

  /** Tell the memory after one operator. */
  private point(index: number): void {
    const point = this.points[index];
    if (point === undefined) return;
    this.at = index;
    const place = placeOf(point);
    const text = `${inGB(point.bytes)} after operator ${point.step + 1}${place && `: ${place}`}${index === this.highest ? ' (the peak)' : ''}`;
    for (const end of ['x1', 'x2']) this.mark.setAttribute(end, `${(WIDE * (index + 0.5)) / this.points.length}`);
    this.told.textContent = text;
    this.curve.setAttribute('aria-valuenow', `${index}`);
    this.curve.setAttribute('aria-valuetext', text);
  }

  private pressed(event: KeyboardEvent): void {
    const last = this.points.length - 1;
    const to = { ArrowLeft: this.at - 1, ArrowRight: this.at + 1, Home: 0, End: last }[event.key];
    if (to !== undefined) this.point(Math.max(0, Math.min(last, to)));
    else if (event.key === 'Enter') this.go(this.points[this.at], true);
    else return;
    event.preventDefault();
  }

  private go(place: CurvePoint | PeakHolder | undefined, focus: boolean): void {
    if (place !== undefined && place.line > 0) this.ways.line(place.file, place.line, focus);
  }

  private holder(held: PeakHolder, largest: number, peak: number): HTMLElement {
    const place = placeOf(held);
    const made = element('button', { role: 'listitem', disabled: held.line === 0, title: place && 'Show its line' });
    made.append(element('span', { class: 'figure share' }, inGB(held.bytes)), element('span', {}, held.kind), element('span', { class: 'path' }, place), element('span', { class: 'path' }, share(held.bytes, peak)));
    made.style.setProperty('--share', `${held.bytes / largest}`);
    made.addEventListener('click', () => this.go(held, false));
    return made;
  }
}

/** `+2.10 GB peak, +12 % time`. */
function changed({ before, after }: CostChange): string {
  const [size, time] = [after.peak_bytes - before.peak_bytes, (100 * (after.seconds - before.seconds)) / (before.seconds || 1)];
  const sign = (number: number) => (number > 0 ? '+' : '-');
  const parts = [size === 0 ? '' : `${sign(size)}${inGB(Math.abs(size))} peak`, Math.abs(time) < 0.05 ? '' : `${sign(time)}${significant(Math.abs(time))} % time`];
  return parts.filter((text) => text !== '').join(', ') || 'the same peak and time';
}

/** What one line holds of a kind, in all modules that ran it; the largest first. */
function byLine(holders: PeakHolder[]): PeakHolder[] {
  const found = new Map<string, PeakHolder[]>();
  for (const held of holders) {
    const key = [held.kind, held.file, held.line].join();
    found.set(key, [...(found.get(key) ?? []), held]);
  }
  const joined = [...found.values()].map(([first, ...others]): PeakHolder | undefined => {
    if (first === undefined || others.length === 0) return first;
    const module = `${first.module} and ${others.length} more`;
    return { ...first, module, bytes: others.reduce((sum, { bytes }) => sum + bytes, first.bytes) };
  });
  return joined.filter((held) => held !== undefined).sort((one, other) => other.bytes - one.bytes);
}

function placeOf({ line, module }: CurvePoint | PeakHolder): string {
  return [line > 0 ? `line ${line}` : '', module].filter((text) => text !== '').join(', ');
}

function facts(run: RunSummary): string[] {
  const sizes = Object.entries(run.fits).map(([name, most]) => (most > 0 ? `${name} <= ${most.toLocaleString('en')}` : `not even ${name} = 1`));
  const room = run.memory === 0 ? '' : `${run.peak_bytes <= run.memory ? 'fits' : 'does not fit'} ${inGB(run.memory)}${sizes.length > 0 ? `: ${sizes.join(', ')}` : ''}`;
  return [`needs ${inGB(run.peak_bytes)}`, room, `estimate ${inTime(run.seconds)}, ${run.bound}-bound`].filter((text) => text !== '');
}
