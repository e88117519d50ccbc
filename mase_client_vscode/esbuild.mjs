// Bundles the extension, and each page that it shows with its styles: node esbuild.mjs [--production]
import { copyFileSync, mkdirSync } from 'node:fs';
import * as esbuild from 'esbuild';

/** The pictures of the walkthrough are those of the documentation, taken in a real VS Code. */
const PICTURES = ['editor', 'error', 'quantised', 'graph', 'verilog'];

copyFileSync('../CHANGELOG.md', 'CHANGELOG.md'); // the marketplaces show the file beside package.json

const production = process.argv.includes('--production');
const common = {
  bundle: true,
  minify: production,
  sourcemap: production ? false : 'linked',
  logLevel: 'warning',
};

await Promise.all([
  esbuild.build({
    ...common,
    entryPoints: ['src/extension.ts'],
    outfile: 'dist/extension.js',
    platform: 'node',
    format: 'cjs',
    target: 'node20',
    external: ['vscode'],
  }),
  esbuild.build({
    ...common,
    entryPoints: {
      costs: 'src/costs/page/main.ts',
      graph: 'src/graph/page/main.ts',
      inputs: 'src/inputs/page/main.ts',
      view: 'src/view/page/main.ts',
      colours: 'src/view/page/colours.css',
      layout: 'elkjs/lib/elk-worker.min.js',
    },
    outdir: 'dist/pages',
    platform: 'browser',
    format: 'iife',
    target: 'chrome128', // VS Code 1.93, the oldest supported one, has Chrome 128
    sourcemap: false, // a page may not fetch anything, so it could not read one
  }),
]);

mkdirSync('dist/pictures', { recursive: true });
for (const name of PICTURES) copyFileSync(`../docs/images/${name}.png`, `dist/pictures/${name}.png`);
copyFileSync('../examples/gpt.py', 'dist/example.py');
