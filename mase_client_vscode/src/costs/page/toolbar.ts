/** The bar above the table: the filter, what to show, and exports. */
import { element } from '../../webview/page/elements';
import { State } from '../messages';

export interface Orders {
  change(change: Partial<State>): void;
  /** Open every row, or close all. */
  open(all: boolean): void;
  copy(): void;
  save(): void;
  graph(): void;
  device(): void;
  /** Move the focus from the filter to the rows. */
  down(): void;
}

export class Toolbar {
  private readonly filter = element('input', { type: 'search', placeholder: 'Filter', title: 'Paths, types and formats; every word must match', 'aria-label': 'Filter' });
  private readonly flat = element('button', { title: 'Layers and operators as one list, e.g. to sort them together' }, 'Flat');
  private readonly operators = element('button', { title: 'Operators that are not layers, e.g. matmul and softmax' }, 'Operators');
  private readonly expand: HTMLButtonElement;
  private readonly collapse: HTMLButtonElement;
  readonly element: HTMLElement;

  constructor(state: State, private readonly orders: Orders) {
    this.filter.value = state.filter;
    this.filter.addEventListener('input', () => orders.change({ filter: this.filter.value }));
    this.filter.addEventListener('keydown', (event) => this.pressed(event));
    this.expand = button('Expand', 'Show every row', () => orders.open(true));
    this.collapse = button('Collapse', 'Show the whole model alone', () => orders.open(false));
    this.flat.addEventListener('click', () => orders.change({ flat: !isPressed(this.flat) }));
    this.operators.addEventListener('click', () => orders.change({ operators: !isPressed(this.operators) }));
    this.element = element(
      'div',
      { class: 'toolbar', role: 'toolbar', 'aria-label': 'Cost table' },
      this.filter,
      this.operators,
      this.flat,
      this.expand,
      this.collapse,
      element('span', { class: 'space' }),
      button('Copy', 'Copy these rows for a spreadsheet, separated by tabs (Ctrl+C)', () => orders.copy()),
      button('CSV…', 'Save these rows as a file', () => orders.save()),
      button('Device…', 'Show memory and time on a device', () => orders.device()),
      button('Graph', 'Show the graph of this model', () => orders.graph()),
    );
  }

  draw({ flat, operators }: State): void {
    this.flat.setAttribute('aria-pressed', `${flat}`);
    this.operators.setAttribute('aria-pressed', `${operators}`);
    this.expand.disabled = this.collapse.disabled = flat;
  }

  /** The filter was changed from outside. */
  filtered(filter: string): void {
    this.filter.value = filter;
  }

  focus(): void {
    this.filter.focus();
    this.filter.select();
  }

  private pressed(event: KeyboardEvent): void {
    if (event.key === 'ArrowDown' || event.key === 'Enter') {
      event.preventDefault();
      this.orders.down();
    } else if (event.key === 'Escape' && this.filter.value !== '') {
      this.filter.value = '';
      this.orders.change({ filter: '' });
    }
  }
}

function button(text: string, title: string, run: () => void): HTMLButtonElement {
  const made = element('button', { title }, text);
  made.addEventListener('click', run);
  return made;
}

function isPressed(made: HTMLElement): boolean {
  return made.getAttribute('aria-pressed') === 'true';
}
