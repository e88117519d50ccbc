/** The commands that links in hovers and in tooltips of hints may run; the server writes no others. */
export const LINKS = ['mase.showGraph', 'mase.showCosts', 'mase.changeInputs'];
