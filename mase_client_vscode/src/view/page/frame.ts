/** A frame with one of the extension's pages, whose host is this page in place of the extension. */
import { element } from '../../webview/page/elements';

/** The texts of the built pages, by the names of their files. */
export type Parts = Record<string, string>;

/** `ToPage` and `FromPage`: the messages of that page, as in its `messages.ts`. */
export class Frame<ToPage extends { type: string }, FromPage extends { type: string }> {
  readonly element = element('iframe', { class: 'frame' });

  /** `begin`: called when the page is loaded, and again whenever it is loaded again. */
  constructor(parts: Parts, name: 'graph' | 'costs', begin: () => void, receive: (message: FromPage) => void) {
    this.element.title = name;
    addEventListener('message', ({ source, data }: MessageEvent<FromPage | { type: 'ready' }>) => {
      if (source === null || source !== this.element.contentWindow) return;
      if (data.type === 'ready') begin();
      else receive(data as FromPage);
    });
    this.element.srcdoc = documentOf(parts, name);
  }

  post(message: ToPage): void {
    this.element.contentWindow?.postMessage(message, '*');
  }
}

/** A document of its own with the colours of this page; the page's policy holds for it, too. */
function documentOf(parts: Parts, name: string): string {
  const nonce = document.getElementById('main')?.nonce ?? '';
  const colours = document.getElementById('colours')?.textContent ?? '';
  const script = (parts[`${name}.js`] ?? '').replaceAll('</script', '<\\/script');
  return `<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>${name}</title>
<style nonce="${nonce}">${colours}${parts[`${name}.css`] ?? ''}</style></head>
<body><script nonce="${nonce}">${script}</script></body></html>`;
}
