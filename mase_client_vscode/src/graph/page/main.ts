/** The graph's page: begins when it is loaded. */
import '../../webview/page/theme.css';
import './graph.css';
import { App } from './app';

new App();
