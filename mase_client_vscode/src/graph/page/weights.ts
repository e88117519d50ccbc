/** The weights of a box, below the drawing: a histogram and figures of each parameter, or why there are none. */
import { element, svg } from '../../webview/page/elements';
import { ParameterStatistics, WeightStatistics } from 'mase-client/records';
import { counted } from '../texts';
import { figuresOf, intervalOf, reasonOf } from '../weights';
import { significant } from '../../figures';

const [WIDTH, HEIGHT] = [240, 64];

export class WeightsPane {
  private readonly title = element('h2');
  private readonly body = element('div', { class: 'parameters' });
  private readonly close = element('button', { type: 'button', title: 'Close (Esc)', 'aria-label': 'Close the weights' }, '×');
  readonly root = element('section', { class: 'weights', 'aria-label': 'Weights', 'aria-live': 'polite', hidden: true, tabindex: -1 }, element('header', {}, this.title, this.close), this.body);
  /** The path of the module or the parameter that is shown; undefined while the pane is closed. */
  of: string | undefined;

  constructor(closed: () => void) {
    const close = () => {
      this.hide();
      closed();
    };
    this.close.addEventListener('click', close);
    this.root.addEventListener('keydown', (event) => event.key === 'Escape' && close());
  }

  wait(of: string, name: string): void {
    const kept = this.of === of && this.body.childElementCount > 0;
    this.of = of;
    this.title.textContent = `Weights of ${of || name}`;
    if (!kept) this.body.replaceChildren(element('p', {}, 'Reading the weights…'));
    this.root.hidden = false;
  }

  hide(): void {
    this.of = undefined;
    this.root.hidden = true;
    this.body.replaceChildren();
  }

  tell(problem: string): void {
    this.body.replaceChildren(element('p', {}, problem));
  }

  show({ parameters, total, weights }: WeightStatistics): void {
    if (parameters.every(({ random }) => random)) {
      const random = weights.startsWith('random') ? `${weights[0]?.toUpperCase()}${weights.slice(1)}` : 'Random weights';
      return this.tell(`${random}: the model loads no file that has their values.`);
    }
    const rest = total > parameters.length ? [element('p', {}, `These are the first ${parameters.length} of ${counted(total, 'parameter')}; select a module inside for the others.`)] : [];
    this.body.replaceChildren(element('p', { class: 'source' }, `From the ${weights.replace(/^the /, '')}`), ...parameters.map(figureOf), ...rest);
  }
}

function figureOf(parameter: ParameterStatistics): HTMLElement {
  const { name, dtype, shape } = parameter;
  const why = reasonOf(parameter);
  const facts = figuresOf(parameter).map(([fact, text]) => element('div', {}, element('dt', {}, fact), element('dd', {}, text)));
  const caption = element('figcaption', {}, element('strong', {}, name), ` ${dtype}[${shape.join(', ')}]`);
  const picture = why === undefined ? histogram(parameter) : element('p', {}, why);
  return element('figure', {}, caption, picture, element('dl', {}, ...facts));
}

function histogram(parameter: ParameterStatistics): HTMLElement {
  const { bins, min, max, name } = parameter;
  const most = bins.reduce((most, count) => Math.max(most, count), 1);
  const wide = WIDTH / bins.length;
  const bars = bins.map((count, bin) => {
    const high = count > 0 ? Math.max(1, (count / most) * HEIGHT) : 0;
    // The whole column answers to the mouse, a low bar too.
    const column = svg('rect', { class: 'column', x: bin * wide, y: 0, width: wide, height: HEIGHT });
    const bar = svg('rect', { class: 'bar', x: bin * wide, y: HEIGHT - high, width: Math.max(0.5, wide - 1), height: high });
    return svg('g', {}, svg('title', {}, intervalOf(parameter, bin)), column, bar);
  });
  const [low, high] = [significant(min ?? 0), significant(max ?? 0)];
  const picture = svg('svg', { class: 'histogram', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: 'img', 'aria-label': `Histogram of ${name}, from ${low} to ${high}` }, ...bars);
  return element('div', { class: 'histogram-box' }, picture, element('div', { class: 'axis', 'aria-hidden': 'true' }, element('span', {}, low), element('span', {}, high)));
}
