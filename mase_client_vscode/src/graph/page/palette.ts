/** The colours of categories and strengths: VS Code's own, so that they fit every theme. */
import { Colour } from '../colours';

const theme = (name: string, usual: string) => `var(--vscode-${name}, ${usual})`;

/** One for each family of operators; the first are the most different from each other. */
export const CATEGORIES = [
  theme('charts-blue', '#3794ff'),
  theme('symbolIcon-classForeground', '#ee9d28'),
  theme('charts-green', '#89d185'),
  theme('charts-purple', '#b180d7'),
  theme('terminal-ansiBrightRed', '#f14c4c'),
  theme('charts-red', '#f14c4c'),
  theme('terminal-ansiMagenta', '#bc3fbc'),
  theme('charts-yellow', '#cca700'),
  theme('terminal-ansiBrightCyan', '#29b8db'),
  theme('terminal-ansiCyan', '#11a8cd'),
  theme('descriptionForeground', '#888888'),
  theme('terminal-ansiBrightGreen', '#23d18b'),
  theme('terminal-ansiBrightBlue', '#3b8eea'),
  theme('terminal-ansiBrightYellow', '#f5f543'),
  theme('terminal-ansiBrightMagenta', '#d670d6'),
  theme('disabledForeground', '#888888'),
];
const STRONG = theme('charts-red', '#f14c4c');
const WEAK = theme('charts-blue', '#3794ff');

export function colourOf(colour: Colour): string | undefined {
  if (colour === undefined) return undefined;
  if ('category' in colour) return CATEGORIES[colour.category % CATEGORIES.length];
  return `color-mix(in oklab, ${STRONG} ${Math.round(100 * colour.strength)}%, ${WEAK})`;
}
